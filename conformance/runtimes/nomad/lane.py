# SPDX-License-Identifier: Apache-2.0
"""Plays the patterns with the plugins under test and with the Go plugins, each side in sandboxes of its own, and compares.

What users do every day must come true with both. What goes wrong may end as badly as with the Go plugins, never worse.
In all of it nothing is left behind, no address is in two places, and Nomad warns of nothing that it does not warn of with
the Go plugins.
"""
import concurrent.futures
import json
import os
import subprocess
import sys

from ... import sandbox
from ...report import Table
from ...upstream.cache import Cache
from .. import builds, packages
from ..lane import alone
from . import build, cluster, faults, figures, patterns

NAME = "nomad"
COLUMNS = ["pattern", "verdict", "what became of it", "left behind", "Go: what became of it", "Go: left behind", "seconds"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
OUT = os.path.join(ROOT, "target", "conformance", "runtimes")
AT_ONCE = 4  # sandboxes; each waits most of the time
TIMEOUT = 900
COUNTS = (1, 20, 60)
ROUNDS = 3  # of the figures, the sides taking turns


def run(bindir, only=(), brief=False):
    """The lane; returns a list of (table, list of shortfalls)."""
    if not _is_wanted(only):
        return []
    fixed, go = prepare()
    sides = {"ours": bindir, "go": go}
    daily, harmed = (patterns.SHORT, faults.SHORT) if brief else (patterns.WHOLE, {**faults.WHOLE, **cluster.WHOLE})
    found = _played(fixed, sides, [list(daily)] + [[name] for name in harmed])
    results = [_compared(found, daily, harmed)]
    return results if brief else results + [_figures(fixed, sides)]


def prepare(only=()):
    """Fills the cache with what `run` needs: the paths of nomad and of packages, and the Go plugins."""
    if not _is_wanted(only):
        return None
    cache = Cache().ready()
    with alone(cache):
        return [build.ready(cache), packages.ready(cache)], builds.go_plugins(cache)


def _is_wanted(only):
    return not only or any(NAME.startswith(o) for o in only)


def _played(fixed, sides, groups):
    """What was found, by side and pattern."""
    jobs = [(side, group) for group in groups for side in sides]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        reports = list(pool.map(lambda job: _sandboxed(fixed + [sides[job[0]]], job[1]), jobs))
    found = {side: {} for side in sides}
    for (side, _), report in zip(jobs, reports):
        found[side].update(report)
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, NAME + ".json"), "w", encoding="utf-8") as f:
        json.dump(found, f, indent=1)
    return found


def _sandboxed(fixed, names):
    """The reports of some patterns that share an agent."""
    env = dict(os.environ, PYTHONPATH=ROOT, PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, "-m", "conformance.runtimes.nomad.inside"] + fixed + [str(n) for n in names]
    try:
        p = subprocess.run(sandbox.command(ROOT, command), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return {name: {"failure": "not done after %d seconds" % TIMEOUT} for name in names}
    if p.returncode:
        return {name: {"failure": p.stderr[-3000:].strip()} for name in names}
    return json.loads(p.stdout.splitlines()[-1])


def _compared(found, daily, harmed):
    """The table of patterns, and what is worse than with the Go plugins."""
    table, problems = Table("Nomad %s" % build.VERSION, COLUMNS), []
    for name in list(daily) + list(harmed):
        ours, control = found["ours"][name], found["go"][name]
        shortfalls = _shortfalls(ours, control)
        if name in daily and "failure" in control:
            shortfalls.append("the Go plugins, too, fail: " + control["failure"])
        problems += ["%s, %s: %s" % (NAME, name, s) for s in shortfalls]
        table.add(name, "no" if shortfalls else "as it should", _became(ours), len(ours.get("left", ())), _became(control),
                  len(control.get("left", ())), "%.0f" % ours.get("took", 0))
    return table, problems


def _shortfalls(ours, control):
    """What is wrong with one pattern."""
    if "failure" in ours:
        return [ours["failure"]]
    out = ["one address in two namespaces: " + a for a in ours["twice"]] + ["left behind: " + l for l in ours["left"]]
    known, excused = tuple(control.get("warnings", ())), ours.get("excused", ())
    # An error may say more than the Go plugins' words.
    out += ["warning: " + w for w in ours["warnings"] if not w.startswith(known) and not any(e in w for e in excused)]
    if "asked" in ours and "asked" in control:
        if ours["deaf"] > control["deaf"]:
            out.append("%d allocations are called running and answer nobody, with the Go plugins %d" % (ours["deaf"], control["deaf"]))
        if _answering(ours) < _answering(control):
            out.append("%d of %d answer, with the Go plugins %d" % (_answering(ours), ours["asked"], _answering(control)))
        if ours["replaced"] > control["replaced"]:
            out.append("%d allocations were replaced, with the Go plugins %d" % (ours["replaced"], control["replaced"]))
    return out


def _answering(report):
    return report["running"] - report["deaf"]


def _became(report):
    """In a few words, what became of a pattern."""
    if "failure" in report:
        return "fails"
    words = []
    if "asked" in report:
        words.append("%d of %d answer" % (_answering(report), report["asked"]))
        words += ["%d %s" % (report[k], what) for k, what in (("deaf", "deaf"), ("replaced", "replaced")) if report[k]]
    if report["twice"]:
        words.append("%d addresses in two places" % len(report["twice"]))
    return ", ".join(words) or "all of it"


def _figures(fixed, sides):
    """The table of times; the sides take turns, the best of each counts."""
    table = Table("Nomad %s, from the job to the last task that runs" % build.VERSION,
                  ["allocations", "seconds", "of it at the network", "Go: seconds", "Go: of it at the network"])
    runs, problems = {side: [] for side in sides}, []
    for _ in range(ROUNDS):
        for side, bindir in sides.items():
            report = _sandboxed(fixed + [bindir], (figures.NAME,) + COUNTS)
            if figures.NAME in report:
                problems.append("%s: figures: %s" % (NAME, report[figures.NAME]["failure"]))
            else:
                runs[side].append(report)
    for count in COUNTS if not problems else ():
        best = [min((r[str(count)] for r in runs[side]), key=lambda r: r["seconds"]) for side in sides]
        table.add(count, *(cell for b in best for cell in ("%.2f" % b["seconds"], "%.2f" % b["network"])))
    table.note("Nomad lets one allocation at a time through its network step: a namespace, rules of its own by iptables, and the plugins. "
               "The better of %d rounds; every task is a process of its own with an executor of Nomad's beside it." % ROUNDS)
    return table, problems
