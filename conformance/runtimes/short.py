# SPDX-License-Identifier: Apache-2.0
"""The README's table: a row for each runtime, where docs/conformance.md has what was found and how long it took."""
from ..report import Table
from . import lane
from .nomad import lane as nomad


def table(found):
    """Of the lane's tables the one for the README."""
    out = Table("Real runtimes", lane.COLUMNS[:-1])
    for each in found:
        if each.columns == nomad.COLUMNS:
            out.add(*_nomad(each))
    for each in found:
        if each.columns == lane.COLUMNS:
            out.rows += [row[:-1] for row in each.rows]
    return out


def _nomad(patterns):
    """Nomad's row, of the table of its patterns."""
    names, verdicts, _, left, became, left_by_go, _ = zip(*patterns.rows)
    failed = [name for name, what in zip(names, became) if what == "fails"]
    verdict = "as it should" if set(verdicts) == {"as it should"} else "no"
    return ["nomad", nomad.build.VERSION.lstrip("v"), "%d patterns of jobs and of what goes wrong" % len(names), verdict, sum(map(int, left)),
            "fails: " + ", ".join(failed) if failed else "as it should", sum(map(int, left_by_go))]
