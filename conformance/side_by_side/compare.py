# SPDX-License-Identifier: Apache-2.0
"""The differences between two normalised records of one scenario."""
import json
import re

MISSING = "(nothing)"
# The record of a host before anything happened, see inside.
START = "start"
# Lists whose order is the kernel's: compared as sets of lines. Rules of the
# packet filter are not among them, their order counts.
SETS = re.compile(r"state/[^/]+/(routes|rules|conntrack)$")

# A bridge's MAC follows its ports, so undoing an ADD also shows there.
BRIDGE_MAC = re.compile(r"^state/host/links/(?!VETH)[^/]+/address$")


class Difference:
    """One place where the two records disagree."""

    def __init__(self, place, ours, theirs):
        self.place, self.ours, self.theirs = place, ours, theirs

    def places(self):
        """What a line of known-differences.md may call it; a line can insist on what the reference has there."""
        said = self.theirs if isinstance(self.theirs, str) else json.dumps(self.theirs)
        return [self.place, "%s (reference: %s)" % (self.place, said)] + ([self.place + " (reference only)"] if self.ours == MISSING else [])

    def __str__(self):
        return "%s\n      ours:      %s\n      reference: %s" % (self.place, _short(self.ours), _short(self.theirs))


def records(ours, theirs, scenario):
    """All differences that are not allowed by the rules below."""
    out, before, undone = [], {}, False
    if ours and ours[0]["step"] == START:
        (before, *_), ours, theirs = map(_flat, ours[:1]), ours[1:], theirs[1:]
    for n, (mine, other) in enumerate(zip(ours, theirs), 1):
        name = "%d %s" % (n, other["step"])
        if undone and other["step"].startswith(("ADD", "DEL")):
            undone = False
        undone = undone or _failed_add(mine) and _failed_add(other)
        a, b = (_flat(r) for r in _whole_answers(mine, other))
        for place in sorted(set(a) | set(b)):
            x, y = a.get(place, MISSING), b.get(place, MISSING)
            if x == y or _better_code(place, x, y, scenario) or _extra_details(place, y):
                continue
            if undone and place.startswith("state/") and (x == before.get(place, MISSING) or BRIDGE_MAC.search(place)):
                continue  # an ADD that fails may undo what the reference leaves behind until DEL
            out.append(Difference(name + "/" + place, x, y))
        before = a if "state" in mine and not undone else before
    if len(ours) != len(theirs):
        out.append(Difference("number of steps", len(ours), len(theirs)))
    return out


def _whole_answers(mine, other):
    """The two steps; where only one plugin run failed, what it printed is compared as one text, which says enough if it
    differs."""
    steps = [dict(s, calls=[dict(c) for c in s.get("calls", [])]) for s in (mine, other)]
    for x, y in zip(steps[0]["calls"], steps[1]["calls"]):
        if x["exit"] != y["exit"] and x["stdout"] != y["stdout"]:
            for call in (x, y):
                call["stdout"] = json.dumps(call["stdout"], sort_keys=True)
                del call["exit"]
    return steps


def _failed_add(step):
    return step["step"].startswith("ADD") and any(c["exit"] for c in step.get("calls", []))


def _better_code(place, mine, other, scenario):
    """The specification's code where the reference says 999 (a scenario names it)."""
    return bool(re.search(r"/stdout/\d+/code$", place)) and other == 999 and mine in scenario.get("better", ())


def _extra_details(place, other):
    """An error may carry details that the reference does not give."""
    return bool(re.search(r"/stdout/\d+/details$", place)) and other == MISSING


def _flat(value, place=""):
    """{place: leaf}. Rules of the packet filter are leaves at their position."""
    if isinstance(value, dict) and value:
        items = value.items()
    elif isinstance(value, list) and value and SETS.match(place):
        items = ((v, True) for v in value)
    elif isinstance(value, list) and value:
        items = enumerate(value)
    elif place.startswith("state/") and value in ({}, []):
        return {}
    else:
        return {place: value}
    out = {}
    for key, v in items:
        out.update(_flat(v, "%s/%s" % (place, key) if place else str(key)))
    return out


def _short(value):
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) < 500 else text[:500] + "…"
