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
from . import compare, normal
from .scenarios import everything

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHOWN = 8
PARALLEL = 3  # a scenario waits about as long as it computes


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
    return compare.records(played(scenario, {"a": ours}), played(scenario, {"a": reference}), scenario)


def features():
    """What this kernel has of what scenarios need."""
    return execute({"facts": True, "bins": {}})


def chosen(only, without=None):
    """The scenarios with one of these parts of names that this kernel can run; of those, when WITHOUT is given, the
    ones that a kernel with only these features cannot run."""
    here = set(features())
    out = [s for s in everything() if not only or any(o in s["name"] for o in only)]
    return [s for s in out if here.issuperset(s["needs"]) and not (without is not None and set(without).issuperset(s["needs"]))]


def run(bindir, reference, known, only=(), without=None, share=slice(None)):
    """The lane; returns (table, list of shortfalls). In the full kernel WITHOUT are the features of the running one; of
    the scenarios SHARE is taken."""
    scenarios = chosen(only, without)[share]
    tally, problems = Tally(title("Side by side with the Go plugins", without, share)), []
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        jobs = [(s, pool.submit(differences, s, bindir, reference)) for s in scenarios]
        for scenario, job in jobs:
            problems += tally.judge(scenario, job, known)
    return tally.table(), problems


def title(what, without, share):
    """A table's: where it was run, and which part of it."""
    where = ", full kernel" if without is not None else ""
    part = "" if share.step in (None, 1) else ", every %d. scenario from the %d. on" % (share.step, share.start + 1)
    return what + where + part


def _listed(name, found):
    """One text per difference; a link that is missing is many, so the tail is only counted."""
    out = ["%s: %s" % (name, d) for d in found[:SHOWN]]
    if len(found) > SHOWN:
        out.append("%s: and %d more differences" % (name, len(found) - SHOWN))
    return out


class Tally:
    """Counts per group of scenarios, for the report."""

    def __init__(self, title):
        self.title = title
        self.groups = collections.OrderedDict()

    def judge(self, scenario, job, known, label=""):
        """Shortfalls of one finished scenario; differences the page explains are only counted."""
        group = self.groups.setdefault(scenario["name"].split("/")[0] + label, collections.Counter())
        group["scenarios"] += 1
        group["steps"] += len(scenario["steps"])
        try:
            found = job.result()
        except (LabError, ValueError, KeyError) as e:
            group["failed"] += 1
            return ["%s: did not run: %s" % (scenario["name"], e)]
        names = {scenario["name"], scenario.get("known", scenario["name"])}
        open_ = [d for d in found if not any(known.accepts("side-by-side", "%s: %s" % (name, place))
                                             for place in d.places() for name in names)]
        group["accepted"] += len(found) - len(open_)
        group["failed" if open_ else "equal"] += 1
        return _listed(scenario["name"] + label, open_)

    def table(self):
        """One row per group."""
        table = Table(self.title, ["scenarios of", "run", "steps", "equal", "different", "accepted differences"])
        for name, c in self.groups.items():
            table.add(name, c["scenarios"], c["steps"], c["equal"], c["failed"], c["accepted"])
        total = sum(self.groups.values(), collections.Counter())
        table.add("all", total["scenarios"], total["steps"], total["equal"], total["failed"], total["accepted"])
        return table
