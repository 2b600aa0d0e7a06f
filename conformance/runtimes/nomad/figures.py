# SPDX-License-Identifier: Apache-2.0
"""How long it takes from handing in a job until all of it runs, and for how much of that time somebody is at the network."""
import datetime
import time

from . import jobs
from .agent import ROOT, Agent
from .lab import Lab

NAME = "figures"


def measured(nomad, counts):
    """Seconds for each count of allocations: until all run, and with an allocation at its network."""
    lab = Lab(Agent(nomad, ROOT, level="TRACE").start())
    lab.warm(jobs.bridge())
    return {str(n): _one(lab, n) for n in counts}


def _one(lab, count):
    job = jobs.job("n%d" % count, jobs.bridge(), count)
    start = time.time()
    found = lab.run(job, seconds=180)
    started = [e["Time"] / jobs.SECOND for a in found for e in a["TaskStates"]["web"]["Events"] if e["Type"] == "Started"]
    result = {"seconds": max(started) - start, "network": _busy([s for s in _spans(lab.agent) if s[0] > start])}
    lab.reach(found)
    lab.end()
    return result


def _spans(agent):
    """When allocations were at their network hook: their namespace, Nomad's own rules and the plugins."""
    for record in agent.said():
        if record["@message"] == "finished pre-run hook" and record.get("name") == "network":
            end = datetime.datetime.fromisoformat(record["@timestamp"].replace("Z", "+00:00")).timestamp()
            yield end - _seconds(record["duration"]), end


def _seconds(duration):
    """The log has nanoseconds."""
    return duration / jobs.SECOND


def _busy(spans):
    """How long at least one of these spans lasted; Nomad lets one allocation at a time through."""
    total, reached = 0.0, 0.0
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
