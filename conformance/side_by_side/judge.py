# SPDX-License-Identifier: Apache-2.0
"""Says of a scenario's differences which the page of known differences explains, and whether they are what was accepted."""
SHOWN = 8


class Judge:
    """The page of known differences, and what exactly was accepted under it (None: nothing is kept of these scenarios)."""

    def __init__(self, known, accepted=None):
        self.known, self.accepted = known, accepted

    def judge(self, scenario, label, found):
        """(shortfalls, {line of the page: differences}) of what was FOUND in a scenario that LABEL says how it was run."""
        names = dict.fromkeys((scenario["name"], scenario.get("known", scenario["name"])))
        explained, unexplained, kept, left = {}, [], [], _Left()
        for difference in found:
            as_before = left.line(difference)
            # What the reference has left stays until somebody takes it away; what ours has left has to be explained again.
            line = as_before if difference.is_reference_only() else None
            line = line or self._line(names, difference)
            if line is None:
                unexplained.append(difference)
                continue
            explained.setdefault(line, []).append(difference)
            left.note(difference, line)
            # What is undone is exact by itself: the state before.
            if not difference.undone and not as_before and not difference.is_detail():
                kept.append(difference)
        name = scenario["name"] + label
        problems = _listed(name, unexplained)
        if self.accepted is not None:
            problems += _few(name, self.accepted.judge(name, kept))
        return problems, explained

    def _line(self, names, difference):
        for name in names:
            for place in difference.places():
                line = self.known.line("side-by-side", "%s: %s" % (name, place))
                if line is not None:
                    return line
        return None


class _Left:
    """What is explained of the state, look by look: much of it is there until the end."""

    def __init__(self):
        self.step, self.before, self.now = None, {}, {}

    def note(self, difference, line):
        """An explained difference."""
        step, place = difference.inside()
        if place is not None and not difference.undone:
            self._turn(step)
            self.now[place] = (_value(difference), line)

    def line(self, difference):
        """The line that explained the very same one look before, or None."""
        step, place = difference.inside()
        self._turn(step)
        value, line = self.before.get(place, (None, None))
        return line if value == _value(difference) else None

    def _turn(self, step):
        if step != self.step:
            self.step, self.before, self.now = step, self.now, {}


def _value(difference):
    return difference.ours, difference.theirs


def _listed(name, found):
    """One text per difference; all that is missing of a link is one."""
    first = {d.root if d.is_reference_only() else d.place: d for d in reversed(found)}
    return _few(name, ["%s: %s" % (name, d) for d in reversed(first.values())])


def _few(name, texts):
    return texts[:SHOWN] + (["%s: and %d more differences" % (name, len(texts) - SHOWN)] if len(texts) > SHOWN else [])
