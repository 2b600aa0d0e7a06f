# SPDX-License-Identifier: Apache-2.0
"""Reads known-differences.md: accepted differences, each with its reason.

A line is `- suite | what | reason`. For an upstream suite `what` is a part of
the spec's name. For `side-by-side` it is `scenario: path`, both with `*` and
`?` as wildcards, matched against the scenario's name and the difference's place
(also with ` (reference only)` behind it where ours has nothing, ` (ours only)` where the reference has,
` (reference: what it has there)`, ` (ours: 7, reference: 999)` where both have something, and only with ` (undone)` where an ADD that failed took back what the reference leaves).
Lines that explain nothing any more are reported, so the page cannot rot.
"""
import fnmatch
import os
import re

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "known-differences.md")


class Known:
    """The page's lines, and which of them were of use."""

    def __init__(self, page=PAGE):
        self.lines: list[dict] = []
        for n, line in enumerate(open(page), 1):
            if not line.startswith("- "):
                continue
            parts = [p.strip() for p in line[2:].split(" | ")]
            if len(parts) != 3 or not all(parts):
                raise ValueError("%s:%d: expected `- suite | what | reason`" % (page, n))
            self.lines.append({"suite": parts[0], "what": parts[1], "reason": parts[2], "line": n, "used": False})
            self.lines[-1]["pattern"] = re.compile(fnmatch.translate(parts[1].replace("[", "[[]")), re.S)

    def line(self, suite, what):
        """The number of the line that says why WHAT may differ in SUITE, or None."""
        for entry in self.lines:
            if entry["suite"] == suite and _matches(entry, what):
                entry["used"] = True
                return entry["line"]
        return None

    def text(self, number):
        """What the line of this number is about."""
        return next(e["what"] for e in self.lines if e["line"] == number)

    def used(self):
        """The numbers of the lines that were of use."""
        return [e["line"] for e in self.lines if e["used"]]

    def note_used(self, numbers):
        """These lines were of use elsewhere."""
        for entry in self.lines:
            entry["used"] |= entry["line"] in numbers

    def unused(self):
        """Lines that explained nothing. Those of random chains are for other seeds, too."""
        return ["known-differences.md:%d: explains nothing any more: %s" % (e["line"], e["what"])
                for e in self.lines if not e["used"] and not e["what"].startswith("random/")]


def _matches(entry, what):
    if entry["suite"] == "side-by-side":
        return entry["pattern"].fullmatch(what) is not None
    return entry["what"] in what
