# SPDX-License-Identifier: Apache-2.0
"""The differences between two normalised records of one scenario."""
import json
import re

MISSING = "(nothing)"
# The record of a host before anything happened, see inside.
START = "start"
# Lists whose order is the kernel's: compared as sets of lines. Rules of the
# packet filter are not among them, their order counts.
SETS = re.compile(r"state/[^/]+/(routes|rules|conntrack|mdb|neighbours|proxies|xfrm|links/[^/]+/fdb)$")

SETTING = re.compile(r"state/[^/]+/links/[^/]+/sysctl/")
# What the plugins under test keep for themselves: `notes` looks at that.
NOTES = "state/files//run/cnibox"

# A bridge's MAC follows its ports, so undoing an ADD also shows there.
BRIDGE_MAC = re.compile(r"^state/host/links/(?!VETH)[^/]+/address$")


class Difference:
    """One place where the two records disagree. ROOT: where one side has nothing, the place from which on it has nothing."""

    def __init__(self, place, ours, theirs, root=None, undone=False):
        self.place, self.ours, self.theirs, self.root, self.undone = place, ours, theirs, root or place, undone

    def is_reference_only(self):
        """Whether ours has nothing there."""
        return self.ours == MISSING

    def is_detail(self):
        """Whether it is a setting of a link that only ours has: which there are, is the kernel's affair."""
        return self.theirs == MISSING and bool(SETTING.search(self.place)) and not SETTING.search(self.root + "/")

    def inside(self):
        """The place without the step, if it is in the state; what one step leaves there the next one finds."""
        step, _, place = self.place.partition("/state/")
        return (step, place) if place else (step, None)

    def places(self):
        """What a line of known-differences.md may call it; a line can insist on what is there."""
        if self.undone:
            return [self.place + " (undone)"]
        ours, theirs = (has if isinstance(has, str) else json.dumps(has) for has in (self.ours, self.theirs))
        out = [self.place, "%s (reference: %s)" % (self.place, theirs)]
        if self.is_reference_only():
            out.append(self.place + " (reference only)")
        if self.theirs == MISSING:
            out.append(self.place + " (ours only)")
        if MISSING not in (self.ours, self.theirs):
            out.append("%s (ours: %s, reference: %s)" % (self.place, ours, theirs))
        return out

    def __str__(self):
        return "%s\n      ours:      %s\n      reference: %s" % (self.place, _short(self.ours), _short(self.theirs))


def records(ours, theirs):
    """All differences, in order."""
    out, before, undone = [], {}, False
    if ours and ours[0]["step"] == START:
        (before, *_), ours, theirs = map(_flat, ours[:1]), ours[1:], theirs[1:]
    for name, mine, other in _pairs(ours, theirs):
        if undone and _is_whole(other) and other["step"].startswith(("ADD", "DEL")):
            undone = False
        undone = undone or _failed_add(mine) and _failed_add(other)
        a, b = (_flat(r) for r in _whole_answers(mine, other))
        mine_has, other_has = _prefixes(a), _prefixes(b)
        for place in sorted(set(a) | set(b)):
            x, y = a.get(place, MISSING), b.get(place, MISSING)
            if x != y and not place.startswith(NOTES):
                root = name + "/" + _root(place, mine_has if x == MISSING else other_has) if MISSING in (x, y) else None
                # An ADD that fails may undo what the reference leaves behind until DEL.
                as_before = place.startswith("state/") and (x == before.get(place, MISSING) or bool(BRIDGE_MAC.search(place)))
                out.append(Difference(name + "/" + place, x, y, root, undone and as_before))
        before = a if "state" in mine and not undone else before
    if len(list(filter(_is_whole, ours))) != len(list(filter(_is_whole, theirs))):
        out.append(Difference("number of steps", len(ours), len(theirs)))
    return out


def _is_whole(step):
    return "part" not in step


def _pairs(ours, theirs):
    """(name, ours, theirs) of each step, and of the parts of a step that both came to."""
    mine = dict(_named(ours))
    for name, other in _named(theirs):
        if name in mine:
            yield name, mine[name], other


def _named(steps):
    number = 1
    for step in steps:
        yield "%d %s%s" % (number, step["step"], " after " + step["part"] if "part" in step else ""), step
        number += _is_whole(step)


def _prefixes(places):
    """All places that have something below them, and these places."""
    out = set()
    for place in places:
        at = len(place)
        while at > 0 and place[:at] not in out:
            out.add(place[:at])
            at = place.rfind("/", 0, at)
    return out


def _root(place, there):
    """The shortest beginning of PLACE that is not among what is THERE."""
    at = place.find("/")
    while at > 0 and place[:at] in there:
        at = place.find("/", at + 1)
    return place if at < 0 else place[:at]


def _whole_answers(mine, other):
    """The two steps; where only one plugin run failed, what it printed is compared as one text, which says enough if it
    differs."""
    steps = [dict(s, calls=[{k: v for k, v in c.items() if k not in ("verb", "whose")} for c in s.get("calls", [])]) for s in (mine, other)]
    for x, y in zip(steps[0]["calls"], steps[1]["calls"]):
        if x["exit"] != y["exit"] and x["stdout"] != y["stdout"]:
            for call in (x, y):
                call["stdout"] = json.dumps(call["stdout"], sort_keys=True)
                del call["exit"]
    return steps


def _failed_add(step):
    return step["step"].startswith("ADD") and any(c["exit"] for c in step.get("calls", []))


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
