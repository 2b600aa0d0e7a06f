# SPDX-License-Identifier: Apache-2.0
"""What a pattern is played with: an agent, the jobs it was given, and whether what it calls running can be reached."""
import collections
import concurrent.futures
import time

from .. import host, remains
from . import hosts, jobs
from .agent import WAIT, wait

PATIENCE = 8  # seconds in which something that goes at all goes
AT_ONCE = 8  # probes at the same time


class Lab:
    """One agent on one host, and what is found about it."""

    def __init__(self, agent):
        self.agent, self.facts, self.jobs = agent, {}, []

    # ------------------------------------------------------------ jobs

    def submit(self, job):
        """Gives the agent a job."""
        self.agent.ask("PUT", "/v1/jobs", {"Job": job})
        if job["ID"] not in self.jobs:
            self.jobs.append(job["ID"])

    def run(self, job, seconds=WAIT):
        """Gives the agent a job and waits until all of it runs; its allocations."""
        self.submit(job)
        return self.running(job, seconds)

    def running(self, job, seconds=WAIT):
        """Waits until as many allocations of a job run as it asks for; them."""
        count = job["TaskGroups"][0]["Count"]

        def all_run():
            found = self.allocations(job["ID"], "running")
            return found if len(found) >= count else None
        try:
            wait(all_run, "%d running allocations of %s" % (count, job["ID"]), seconds=seconds)
        except host.RuntimeFailure as e:
            raise host.RuntimeFailure("%s; %s" % (e, "; ".join(self.reasons(job["ID"]))))
        return [self.agent.get("/v1/allocation/" + a["ID"]) for a in self.allocations(job["ID"], "running")]

    def allocations(self, job, *states):
        """The allocations of a job that are wanted and in one of these states."""
        found = self.agent.get("/v1/job/%s/allocations?all=true" % job)
        return [a for a in found if a["ClientStatus"] in states and a["DesiredStatus"] == "run"]

    def failed(self, job):
        """How many allocations of a job failed so far."""
        return sum(a["ClientStatus"] == "failed" for a in self.agent.get("/v1/job/%s/allocations?all=true" % job))

    def reasons(self, job):
        """How far the allocations of a job came, which plugins run for them, each kind with its number, and what the agent
        warned of."""
        stages = [_stage(a) for a in self.agent.get("/v1/job/%s/allocations?all=true" % job)]
        found = collections.Counter(stages + ["at work: " + plugin for plugin in hosts.plugins()])
        return ["%d %s" % (number, kind) for kind, number in sorted(found.items())] + self.warnings()

    def end(self, *names):
        """Ends the named jobs, or all, waits until none of their allocations is busy, and forgets them. Of a job that is to be
        forgotten at once the server forgets the allocations, too, and gives away their ports while their tasks still run."""
        ended = names or tuple(self.jobs)
        self._delete(ended)
        self.jobs = [j for j in self.jobs if j not in ended]
        wait(self._nobody_else_is_busy, "the end of jobs", self.agent)
        self._delete(ended, "?purge=true")

    def _delete(self, names, how=""):
        for name in names:
            self.agent.ask("DELETE", "/v1/job/%s%s" % (name, how))

    def _nobody_else_is_busy(self):
        others = [a for a in self.agent.get("/v1/allocations") if a["JobID"] not in self.jobs]
        return all(a["ClientStatus"] in ("complete", "failed", "lost") for a in others)

    # ------------------------------------------------------------ probes

    def reach(self, allocations, seconds=5, **where):
        """Fails unless each allocation answers as itself through its published port."""
        deaf = self.deaf(allocations, seconds, **where)
        host.expect("allocations that cannot be reached %s" % (where or ""), deaf, [])

    @staticmethod
    def deaf(allocations, seconds=5, address=host.HOST, namespace="out"):
        """The allocations whose published port is not answered by themselves within some seconds, with what came instead.

        ADDRESS is the host's that is asked; None: that of the node which has the allocation.
        """
        deadline, left = time.monotonic() + seconds, list(allocations)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            while True:
                answers = list(pool.map(lambda a: hosts.get(address or node_address(a), published(a), namespace), left))
                wrong = [(a, answer) for a, answer in zip(left, answers) if answer != a["ID"]]
                left = [a for a, _ in wrong]
                if not left or time.monotonic() > deadline:
                    return ["%s: %s" % (a["ID"], answer) for a, answer in wrong]
                time.sleep(0.1)

    # ------------------------------------------------------------ what is left

    def warnings(self):
        """What the client warned of."""
        return self.agent.warnings()

    @staticmethod
    def seen():
        """What the host holds."""
        return remains.seen()

    def warm(self, *networks):
        """One allocation of each network comes and goes, so that what all share is there."""
        for number, network in enumerate(networks):
            self.run(jobs.job("warm%d" % number, network))
        self.end()

    def quiet(self):
        """The host's state as soon as it stays the same."""
        before = self.seen()
        while True:
            time.sleep(0.3)
            now = self.seen()
            if now == before:
                return now
            before = now

    def left(self, before):
        """What is left of what was not there before, as soon as it gets no less."""
        since, last = time.monotonic(), None
        while True:
            left = sorted(self.seen() - before)
            if left != last:
                since, last = time.monotonic(), left
            if not left or time.monotonic() > since + PATIENCE:
                return left
            time.sleep(0.2)


def _stage(allocation):
    events = [e["DisplayMessage"] for t in (allocation["TaskStates"] or {}).values() for e in t["Events"]]
    return "%s, wanted to %s: %s" % (allocation["ClientStatus"], allocation["DesiredStatus"], ", ".join(filter(None, events)))


def published(allocation):
    """The host port of an allocation."""
    return allocation["AllocatedResources"]["Shared"]["Ports"][0]["Value"]


def node_address(allocation):
    """The address of the node that has an allocation."""
    return allocation["AllocatedResources"]["Shared"]["Networks"][0]["IP"]


def address(allocation, family=4):
    """The address that Nomad was told of."""
    return allocation["NetworkStatus"]["AddressIPv6" if family == 6 else "Address"]
