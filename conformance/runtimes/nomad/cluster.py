# SPDX-License-Identifier: Apache-2.0
"""A server and three clients on one machine, each client with a network, reservations and namespaces of its own."""
import json
import subprocess
import sys

from .. import host
from . import jobs
from .agent import Agent, client, wait
from .lab import Lab, node_address

SERVER = "192.0.2.1"
NODES = {"n1": "192.0.2.11", "n2": "192.0.2.12", "n3": "192.0.2.13"}
# What a machine has for itself.
OWN = ("/run/netns", "/run/cni", "/run/cnibox", "/var/lib/cni")
SEEN = "import json; from conformance.runtimes import remains; print(json.dumps(sorted(remains.seen())))"


class Cluster(Lab):
    """The server, asked as any agent is, and the nodes."""

    def __init__(self, executable):
        host.shell("ip link add lan type bridge && ip addr add %s/24 dev lan && ip link set lan up" % SERVER)
        super().__init__(Agent(executable, "/run/lab/server", address=SERVER, client={"enabled": False}))
        self.agent.launch()
        self.machines = {name: _machine(name, address) for name, address in NODES.items()}
        self.clients = {name: self._client(executable, name) for name in NODES}
        for one in self.clients.values():
            one.launch()
        wait(lambda: self.ready() == len(NODES), "three nodes", self.agent)
        self.run(jobs.job("warm", jobs.bridge(), 9))  # some on each
        self.end()

    def _client(self, executable, name):
        return Agent(executable, "/run/lab/" + name, name=name, address=NODES[name], inside=self._enter(name), server={"enabled": False},
                     client=client(servers=[SERVER], network_interface="eth0"))

    def _enter(self, name):
        return ["nsenter", "--mount", "--net", "--target", str(self.machines[name].pid)]

    def ready(self):
        """How many nodes take work."""
        try:
            return sum(n["Status"] == "ready" and "raw_exec" in (n["Drivers"] or {}) for n in self.agent.get("/v1/nodes"))
        except (OSError, host.RuntimeFailure):
            return 0

    def warnings(self):
        """What the clients warned of."""
        return [w for one in self.clients.values() for w in one.warnings()]

    def seen(self):
        """What the machines hold."""
        return {"%s: %s" % (name, line) for name in NODES
                for line in json.loads(subprocess.run(self._enter(name) + [sys.executable, "-c", SEEN], check=True, stdout=subprocess.PIPE).stdout)}


def _machine(name, address):
    """A process that holds a machine's namespaces."""
    host.shell("ip netns add {0} && ip link add {0} master lan up type veth peer name eth0 netns {0}".format(name))
    host.shell("ip -n {0} link set lo up && ip -n {0} link set eth0 up && ip -n {0} addr add {1}/24 dev eth0".format(name, address))
    host.shell("ip -n {0} route add default via {1}".format(name, SERVER))
    host.shell("mkdir -p " + " ".join(OWN))
    mounts = "".join("mount -t tmpfs tmpfs %s; " % d for d in OWN)
    machine = subprocess.Popen(["ip", "netns", "exec", name, "sh", "-c", mounts + "echo; exec sleep 3600"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE)
    machine.stdout.readline()  # all is mounted
    return machine


def moves(lab):
    """Nine allocations; a node is drained; another goes down, and when it comes back it deletes what it had."""
    job = jobs.job("spread", jobs.bridge(), 9)
    found = lab.run(job)
    reached = {"namespace": "host", "address": None}
    lab.reach(found, **reached)
    host.expect("nodes that have allocations", {node_address(a) for a in found}, set(NODES.values()))
    lab.agent.ask("PUT", "/v1/node/%s/drain" % _id(lab, "n1"), {"DrainSpec": {"Deadline": 10 * jobs.SECOND}, "MarkEligible": False})
    _away_from(lab, job, "n1")
    lab.reach(lab.running(job), **reached)
    lab.clients["n2"].stop()
    _away_from(lab, job, "n2")
    lab.reach(lab.running(job), **reached)
    lab.end()
    lab.clients["n2"].launch()
    wait(lambda: lab.ready() == len(NODES), "the third node again", lab.clients["n2"])


def _id(lab, name):
    return next(n["ID"] for n in lab.agent.get("/v1/nodes") if n["Name"] == name)


def _away_from(lab, job, name):
    """Waits until all of a job runs on other nodes than NAME."""
    def away():
        found = lab.allocations(job["ID"], "running")
        return len(found) == job["TaskGroups"][0]["Count"] and name not in {a["NodeName"] for a in found}
    wait(away, "allocations on other nodes than " + name, lab.agent, seconds=90)


WHOLE = {"cluster: a node drained, a node down and back": moves}
