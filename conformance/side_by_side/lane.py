# SPDX-License-Identifier: Apache-2.0
"""The side-by-side lane: every scenario with both sets of plugins, and no unexplained difference."""
import collections
import concurrent.futures
import json
import os
import subprocess
import sys

from .. import sandbox
from ..report import Table
from ..upstream.debian import LabError
from . import compare, normal, notes
from .scenarios import everything

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARALLEL = 4  # a scenario waits as long as it computes
PROGRESS = 100  # scenarios between two lines that say how far a lane is


def execute(job):
    """Runs a job in a sandbox of its own; what it printed."""
    # Thousands of short runs: their modules are compiled once, and nothing else is looked for.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env.update(PYTHONPATH=ROOT, PYTHONPYCACHEPREFIX=os.path.join(ROOT, "target", "conformance", "pycache"))
    p = subprocess.run(sandbox.command(ROOT, [sys.executable, "-S", "-m", "conformance.side_by_side.inside"]),
                       input=json.dumps(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    if p.returncode:
        raise LabError("%s: %s" % (job.get("scenario", {}).get("name"), p.stderr[-1500:]))
    return json.loads(p.stdout)


def played(scenario, bins, by="a"):
    """The normalised record of a scenario."""
    job = {"scenario": scenario, "bins": {k: os.path.realpath(v) for k, v in bins.items()}, "by": by}
    return normal.record(execute(job), scenario)


def differences(scenario, ours, reference):
    """What OURS (a directory) does differently from REFERENCE in a scenario."""
    mine = played(scenario, {"a": ours})
    return notes.problems(mine, alone=True) + compare.records(mine, played(scenario, {"a": reference}))


def features():
    """What this kernel has of what scenarios need."""
    return execute({"facts": True, "bins": {}})


def chosen(only, without=None):
    """The scenarios with one of these parts of names that this kernel can run; of those, when WITHOUT is given, the
    ones that a kernel with only these features cannot run."""
    here = set(features())
    out = [s for s in everything() if not only or any(o in s["name"] for o in only)]
    return [s for s in out if here.issuperset(s["needs"]) and not (without is not None and set(without).issuperset(s["needs"]))]


def run(bindir, reference, judge, only=(), without=None, share=slice(None)):
    """The lane; returns pairs of a table and its shortfalls. In the full kernel WITHOUT are the features of the running one; of
    the scenarios SHARE is taken."""
    scenarios = chosen(only, without)[share]
    tally, problems = Tally(title("Side by side with the Go plugins", without, share), judge), []
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        jobs = [(s, pool.submit(differences, s, bindir, reference)) for s in scenarios]
        for scenario, job in jobs:
            problems += tally.add(scenario, job)
    return tally.outcome(problems)


def title(what, without, share):
    """A table's: where it was run, and which part of it."""
    where = ", full kernel" if without is not None else ""
    part = "" if share.step in (None, 1) else ", every %d. scenario from the %d. on" % (share.step, share.start + 1)
    return what + where + part


class Tally:
    """Counts per group of scenarios and per line of the page, for the report."""

    def __init__(self, title, judge):
        self.title, self.judge = title, judge
        self.groups, self.lines = collections.OrderedDict(), collections.Counter()

    def add(self, scenario, job, label=""):
        """Shortfalls of one finished scenario."""
        group = self.groups.setdefault(scenario["name"].split("/")[0] + label, collections.Counter())
        group["scenarios"] += 1
        group["steps"] += len(scenario["steps"])
        try:
            problems, explained = self.judge.judge(scenario, label, job.result())
        except (LabError, ValueError, KeyError) as e:
            problems, explained = ["%s: did not run: %s" % (scenario["name"], e)], {}
        group["different" if problems else "accepted" if explained else "equal"] += 1
        group["pairs"] += len(explained)
        self.lines.update(explained.keys())
        self._tell(problems)
        return problems

    def _tell(self, problems):
        """Says at once what was found, and now and then how far the lane is: it takes up to half an hour, and may be ended before
        its tables are printed."""
        done = sum(group["scenarios"] for group in self.groups.values())
        progress = ["%d scenarios done" % done] if done % PROGRESS == 0 else []
        for line in problems + progress:
            print("%s: %s" % (self.title, line), file=sys.stderr, flush=True)

    def tables(self):
        """One row per group, and one per line that explained something."""
        groups = Table(self.title, ["scenarios of", "run", "steps", "equal", "equal but for what is accepted", "different", "scenarios times lines"])
        rows = list(self.groups.items()) + [("all", sum(self.groups.values(), collections.Counter()))]
        for name, c in rows:
            groups.add(name, c["scenarios"], c["steps"], c["equal"], c["accepted"], c["different"], c["pairs"])
        lines = Table(self.title + ": what was accepted", ["line", "scenarios"])
        for line, scenarios in sorted(self.lines.items()):
            lines.add("`%s`" % self.judge.known.text(line).replace("|", "\\|"), scenarios)
        return groups, lines

    def outcome(self, problems):
        """The tables, with the shortfalls at the first."""
        groups, lines = self.tables()
        return [(groups, problems), (lines, [])]
