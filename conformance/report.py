# SPDX-License-Identifier: Apache-2.0
"""Tables for the terminal and for target/conformance/report.md (both Markdown)."""


class Table:
    """A titled Markdown table with notes below it."""

    def __init__(self, title, columns):
        self.title, self.columns, self.rows, self.notes = title, columns, [], []

    def add(self, *cells):
        """One row."""
        self.rows.append([str(c) for c in cells])

    def note(self, text):
        """A line below the table."""
        self.notes.append(text)

    def markdown(self):
        """The table as text, columns aligned so that it also reads in a terminal."""
        widths = [max(len(r[i]) for r in [self.columns] + self.rows) for i in range(len(self.columns))]
        lines = ["### " + self.title, ""]
        for row in [self.columns, ["-" * w for w in widths]] + self.rows:
            lines.append("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |")
        return "\n".join(lines + ([""] + self.notes if self.notes else []) + [""])
