# SPDX-License-Identifier: Apache-2.0
"""How long containers take from the request on, and for how much of that time their runtime is in CNI.

A figure is a number of seconds, or a pair: seconds, and those of them that the runtime says it was in CNI (None where it
does not say). Of the rounds, in which both sets of plugins take turns, the best counts.
"""
from ..report import Table

COLUMNS = ["runtime", "what", "seconds", "in CNI", "share", "Go: seconds", "Go: in CNI", "Go: share"]


def table():
    """The empty table."""
    return Table("Seconds from the request on; the best of the rounds, both sets of plugins in turns", COLUMNS)


def add(to, name, ours, control):
    """The rows of one runtime, from the rounds of both sides."""
    for what in ours[0] if ours else ():
        to.add(name, what, *_cells(ours, what), *_cells(control, what))


def _cells(rounds, what):
    """The best of the rounds."""
    figures = [r[what] if isinstance(r[what], (list, tuple)) else (r[what], None) for r in rounds if what in r]
    if not figures:
        return ["-"] * 3
    seconds, inside = min(figures, key=lambda f: f[0])
    if inside is None:
        return ["%.2f" % seconds, "-", "-"]
    return ["%.2f" % seconds, "%.3f" % inside, "%.0f %%" % (100 * inside / seconds)]
