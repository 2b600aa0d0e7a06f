# SPDX-License-Identifier: Apache-2.0
"""The last whole run of each lane, kept below target/conformance so that the README can have all of them after a run of some."""
import datetime
import json
import os

from .report import Table

COLUMNS = ["lane", "verdict", "shortfalls", "seconds", "on"]


def keep(directory, lane, row, tables):
    """Keeps what one whole run of a lane ended with: its row of the lanes' table, and its tables as text."""
    os.makedirs(directory, exist_ok=True)
    row = [lane] + row + [datetime.date.today().isoformat()]
    with open(os.path.join(directory, lane + ".json"), "w", encoding="utf-8") as f:
        json.dump({"row": row, "tables": tables}, f)


def markdown(directory, lanes):
    """All that is kept, in the order of LANES; a lane that never ran here has a row that says so."""
    times, tables = Table("Lanes", COLUMNS), []
    for lane in lanes:
        try:
            with open(os.path.join(directory, lane + ".json"), encoding="utf-8") as f:
                kept = json.load(f)
        except FileNotFoundError:
            kept = {"row": [lane, "not run", "", "", ""], "tables": []}
        times.add(*kept["row"])
        tables += kept["tables"]
    return "\n".join([times.markdown()] + tables)
