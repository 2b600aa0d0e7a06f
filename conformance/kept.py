# SPDX-License-Identifier: Apache-2.0
"""Puts a lane's whole run into docs/conformance.md and the README; what they have of other lanes stays as it is."""
import datetime
import os
import subprocess

from .report import Table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join("docs", "conformance.md")
COLUMNS = ["lane", "verdict", "shortfalls", "seconds", "on", "at"]


def keep(directory, lane, row, tables):
    """Renews one lane: its row of the lanes' table, and its tables as text. DIRECTORY is for what is put there."""
    times = Table("Lanes", COLUMNS)
    times.add(lane, *row, datetime.date.today().isoformat(), said("commit"))
    row_file = written(directory, lane + ".row.md", times.markdown())
    for page in (PAGE, "README.md"):
        said("put-table", "--rows", page, "lanes", row_file)
    said("put-table", PAGE, lane, written(directory, lane + ".md", "\n".join(tables) or "It has no tables."))


def keep_in_readme(directory, lane, table):
    """Renews the README's own table of a lane; its heading stands there."""
    text = table.markdown().split("\n", 2)[2]
    said("put-table", "README.md", lane, written(directory, lane + ".readme.md", text))


def keep_soak(directory, seconds, seed, tables):
    """Renews what the page says of the last long soak, which no whole run has."""
    what = "%d seconds with seed %d, on %s at %s." % (seconds, seed, datetime.date.today().isoformat(), said("commit"))
    said("put-table", PAGE, "soak", written(directory, "soak.md", "\n\n".join([what] + tables)))


def written(directory, name, text):
    """The path of a new file with TEXT."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def said(script, *args):
    """What one of the scripts prints."""
    run = subprocess.run([os.path.join(ROOT, "scripts", script), *args], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return run.stdout.strip()
