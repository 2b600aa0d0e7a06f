# SPDX-License-Identifier: Apache-2.0
"""docs/hosts.md: a table for each kind of host and one of what is said there. A host that was run has new rows, and the
others keep theirs, with their date and commit."""
import datetime
import os

from .. import kept
from ..report import Table
from . import catalogue

PAGE = os.path.join("docs", "hosts.md")
WORDS = ["host", "what", "words"]
STAMP = ["on", "at"]


def columns(table):
    """The titles of a table's columns."""
    return ["host", "kernel"] + [column.title for column in catalogue.TABLES[table]]


def stamp():
    """The date and the commit of what is run from now on."""
    return [datetime.date.today().isoformat(), kept.said("commit")]


def keep(directory, host, row, words):
    """Puts one host's stamped row and words into the page, in the catalogue's order. DIRECTORY is for what is put there."""
    _renew(directory, host.table, columns(host.table) + STAMP, host, [row])
    _renew(directory, "words", WORDS, host, words)


def _renew(directory, block, titles, host, rows):
    old = [[row.get(title, "not run") for title in titles] for row in _rows(block) if row["host"] != host.name]
    order = {h.name: at for at, h in enumerate(catalogue.HOSTS)}
    table = Table("", titles)
    for row in sorted((r for r in old + rows if r[0] in order), key=lambda r: order[r[0]]):
        table.add(*(cell.replace("|", "\\|") for cell in row))
    text = table.markdown().split("\n", 2)[2]
    kept.said("put-table", PAGE, block, kept.written(directory, block + ".md", text))


def _rows(block):
    """The rows that a block of the page has, each by the titles of its columns."""
    with open(os.path.join(kept.ROOT, PAGE), encoding="utf-8") as f:
        text = f.read().split("<!-- %s:begin -->" % block)[1].split("<!-- %s:end -->" % block)[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip().replace("\0", "|") for cell in line.replace("\\|", "\0").strip("|").split("|")] for line in lines]
    return [dict(zip(rows[0], row)) for row in rows[2:]]
