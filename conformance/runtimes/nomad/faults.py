# SPDX-License-Identifier: Apache-2.0
"""What goes wrong. Each pattern harms something; what has become of it some seconds later is found, not demanded: the Go
plugins, which have no answer to some of it, are the measure.
"""
import os
import shutil
import time

from .. import host
from . import hosts, jobs
from .agent import wait

COUNT = 4  # allocations that meet a fault
# Seconds within which all is well again, or is not, and that all has to be well: Nomad tries a network three times before it
# gives an allocation up, with a second or two in between, and one allocation at a time.
HEALED, STEADY = 60, 6
# What Nomad says of an allocation that it was cut short at; which of it depends on the moment.
CUT_SHORT = ["network already configured but not found in state", "already exists but was misconfigured"]
NETWORK = "/run/cni/nomad"  # the reservations of Nomad's bridge


# Thirteen addresses: those that come after the fault are given some that were given before.
FEW, FURTHER = "172.26.64.0/28", 8


class Fault:
    """Harm to allocations while their agent is down, by one name.

    SAVED: the agent has noted the networks of its allocations before it is killed, as it does once a minute.
    """

    def __init__(self, harm, saved=False):
        self.harm, self.saved = harm, saved

    def __call__(self, lab):
        job = jobs.job("harmed", jobs.bridge(), COUNT)
        before = lab.run(job)
        lab.reach(before)
        if self.saved:
            lab.agent.stop()
            lab.agent.start()
            lab.reach(before)
        lab.agent.kill()
        self.harm([a["ID"] for a in before])
        lab.agent.start()
        heal(lab, job, before)
        self._further(lab)

    @staticmethod
    def _further(lab):
        """Others come, and get addresses that were given before; whoever is called running of them answers."""
        job = jobs.job("further", jobs.bridge(), FURTHER)
        lab.submit(job)
        wait(lambda: len(lab.allocations("further", "running")) == FURTHER or lab.failed("further"), "further allocations", lab.agent)
        lab.facts["deaf"] += len(lab.deaf([lab.agent.get("/v1/allocation/" + a["ID"]) for a in lab.allocations("further", "running")]))


def heal(lab, job, before=()):
    """Waits until all of a job runs and answers, and goes on to; notes what does not."""
    start, count, since = time.monotonic(), job["TaskGroups"][0]["Count"], None
    while True:
        found = [lab.agent.get("/v1/allocation/" + a["ID"]) for a in lab.allocations(job["ID"], "running")]
        deaf = lab.deaf(found, seconds=0)
        now = time.monotonic()
        since = (since or now) if len(found) == count and not deaf else None
        if (since and now > since + STEADY) or now > start + HEALED:
            break
        time.sleep(0.3)
    ids = {a["ID"] for a in found}
    lab.facts.update(asked=count, running=len(found), deaf=len(deaf), failed=lab.failed(job["ID"]),
                     seconds=round(since - start, 1) if since else None, replaced=sum(a["ID"] not in ids for a in before))


def _link_down(allocs):
    for alloc in allocs:
        host.shell("ip -n %s link set eth0 down" % alloc)


def _addresses_flushed(allocs):
    for alloc in allocs:
        host.shell("ip -n %s addr flush dev eth0" % alloc)


def _namespaces_unmounted(allocs):
    for alloc in allocs:
        hosts.unmount_namespace(alloc)


def _namespaces_killed(allocs):
    hosts.kill_tasks()
    _namespaces_unmounted(allocs)


def flaky(lab):
    """A plugin that is chained last fails two times of three."""
    job = jobs.job("flaky", jobs.cni("flaky"), 2)
    lab.submit(job)
    heal(lab, job)


def killed_while_adding(lab):
    """The agent dies in the middle of twenty ADDs."""
    job = jobs.job("twenty", jobs.bridge(), 20)
    lab.submit(job)
    wait(lambda: os.path.isdir(NETWORK) and len(_reserved()) >= 8, "eight reservations", lab.agent)
    lab.agent.kill()
    lab.agent.start()
    heal(lab, job)
    lab.facts["excused"] = CUT_SHORT


def _reserved():
    return [n for n in os.listdir(NETWORK) if n[0].isdigit()]


def old_state(lab):
    """Reservations where an older Nomad kept them: the agent moves them when it starts, and nobody is given what they hold."""
    lab.agent.kill()
    shutil.rmtree(NETWORK, ignore_errors=True)
    os.makedirs("/var/lib/cni/networks/nomad")
    held = ["172.26.64.%d" % n for n in range(2, 6)]
    for address in held:
        with open("/var/lib/cni/networks/nomad/" + address, "w") as f:
            f.write("older\r\neth0")
    lab.agent.start()
    host.expect("reservations where they were", os.path.isdir("/var/lib/cni/networks/nomad"), False)
    found = lab.run(jobs.job("newer", jobs.bridge(), COUNT))
    host.expect("addresses of others that were given", [a["ID"] for a in found if a["NetworkStatus"]["Address"] in held], [])
    lab.reach(found)
    for address in held:
        os.unlink(NETWORK + "/" + address)


SHORT = {
    "agent killed": Fault(lambda _: None, saved=True),
    "rules flushed": Fault(lambda _: hosts.flush_rules()),
    "namespaces unmounted": Fault(_namespaces_unmounted),
    "killed in the middle of 20 ADDs": killed_while_adding,
    "reboot": Fault(lambda _: hosts.reboot(keep_run=False)),
}
WHOLE = {
    **SHORT,
    "namespaces unmounted, tasks dead": Fault(_namespaces_killed),
    "link down": Fault(_link_down, saved=True),
    "address flushed": Fault(_addresses_flushed, saved=True),
    "reboot that keeps /run": Fault(lambda _: hosts.reboot(keep_run=True)),
    "state of an older Nomad": old_state,
    "last plugin fails twice": flaky,
}
