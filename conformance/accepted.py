# SPDX-License-Identifier: Apache-2.0
"""What exactly was accepted, scenario by scenario: the files in accepted/.

known-differences.md says why something may differ; these files say what the plugins under test had there when that was
decided, so that nothing else can hide behind a reason. `scripts/conformance LANE... --renew-accepted` writes them anew for
what it ran; their diff is what a reviewer reads.

A file is named after a group of scenarios. A scenario's name is on a line of its own; below it, with two blanks before
it, a line for each place that differs, with what ours has there. `?` before a place: chance decides whether it differs.
"""
import hashlib
import json
import os
import re

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "accepted")
HEAD = "# SPDX-License-Identifier: Apache-2.0\n# Written by scripts/conformance --renew-accepted; conformance/accepted.py says what it is.\n"
LONGEST = 100


class Accepted:
    """The files; with RENEWING what is seen replaces what they have."""

    def __init__(self, renewing=False, folder=FOLDER):
        self.folder, self.renewing = folder, renewing
        self.kept = {}
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            self._read(os.path.join(folder, name))

    def _read(self, path):
        scenario = None
        for line in open(path, encoding="utf-8"):
            line = line.rstrip("\n")
            if line.startswith("  "):
                self.kept[scenario].add(line[2:])
            elif line and not line.startswith("#"):
                scenario = line
                self.kept[scenario] = set()

    def judge(self, scenario, differences):
        """What is not as it was accepted, of a scenario's DIFFERENCES that the page explains."""
        seen = {entry(d) for d in differences}
        kept = self.kept.get(scenario, set())
        by_chance = {e for e in kept if e.startswith("? ")}
        if self.renewing:
            self.kept[scenario] = {e for e in seen if "? " + e not in by_chance} | by_chance
            return []
        new = {e for e in seen - kept if "? " + e not in by_chance}
        gone = kept - by_chance - seen
        return ["%s: explained, but not what was accepted: %s" % (scenario, e) for e in sorted(new)] + \
            ["%s: accepted, but no difference any more: %s" % (scenario, e) for e in sorted(gone)]

    def answers(self):
        """What was seen, to be taken over elsewhere."""
        return {scenario: sorted(entries) for scenario, entries in self.kept.items()}

    def take(self, answers):
        """Takes over what `answers` said in another process."""
        self.kept.update({scenario: set(entries) for scenario, entries in answers.items()})

    def write(self):
        """The files, if they are being renewed."""
        if not self.renewing:
            return
        groups = {}
        for scenario in sorted(self.kept):
            if self.kept[scenario]:
                groups.setdefault(re.sub(r"[^a-z0-9-]", "-", scenario.split("/")[0]), []).append(scenario)
        os.makedirs(self.folder, exist_ok=True)
        for group, scenarios in groups.items():
            with open(os.path.join(self.folder, group + ".txt"), "w", encoding="utf-8") as f:
                f.write(HEAD)
                for scenario in scenarios:
                    f.write("\n%s\n" % scenario)
                    f.writelines("  %s\n" % e for e in sorted(self.kept[scenario]))


def entry(difference):
    """A difference as a line: where ours has nothing, all that is missing is one; a long text is its digest."""
    if difference.is_reference_only():
        return difference.root + " = (nothing)"
    text = json.dumps(difference.ours, sort_keys=True, ensure_ascii=False)
    if len(text) > LONGEST:
        text = "%d characters, sha256 %s" % (len(text), hashlib.sha256(text.encode()).hexdigest()[:16])
    return "%s = %s" % (difference.place, text)
