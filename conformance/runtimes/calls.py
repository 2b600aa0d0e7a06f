# SPDX-License-Identifier: Apache-2.0
"""A runtime of one's own for what is not about a runtime: namespaces by hand, verbs by libcni."""
import errno
import json
import os
import time

from ..side_by_side import netns, traffic
from . import host

CACHE = "/run/lab/libcni"


class Network:
    """One conflist, called through the libcni driver."""

    def __init__(self, driver, conf, cache=CACHE):
        self.driver, self.name, self.cache = driver, conf["name"], cache
        self.path = "/run/lab/%s.conflist" % self.name
        with open(self.path, "w") as f:
            json.dump(conf, f)

    def verb(self, verb, container, ports=(), **env):
        """One verb; its output. PORTS: pairs of host port and container port."""
        mapped = [{"hostPort": h, "containerPort": c, "protocol": "tcp"} for h, c in ports]
        env = dict(os.environ, CNI_PATH=host.PLUGINS, ID=container, NETNS=netns.path(container), IFNAME="eth0",
                   CAPABILITIES=json.dumps({"portMappings": mapped} if mapped else {}), **env)
        return host.shell("%s %s %s %s" % (self.driver, verb, self.path, self.cache), env)

    def refusal(self, verb, container, ports=()):
        """What a verb that must fail says, or None if it did not fail."""
        try:
            self.verb(verb, container, ports)
        except host.RuntimeFailure as e:
            return str(e)
        return None

    def add(self, container, ports=()):
        """A new namespace, and ADD; the addresses."""
        host.shell("ip netns add " + container)
        result = json.loads(self.verb("ADD", container, ports))
        return [ip["address"].split("/")[0] for ip in result["ips"]]

    def delete(self, container, ports=()):
        """DEL, and the namespace's end."""
        try:
            self.verb("DEL", container, ports)
        finally:
            host.shell("ip netns del " + container)

    def end_all(self):
        """DEL for every namespace that is still there."""
        for line in host.shell("ip netns list").splitlines():
            if line.split()[0] != "out":
                self.delete(line.split()[0])


def reached(what, seconds=5, **step):
    """A connection that must come about, soon: a neighbour has to be found first, and a first packet may be lost for it."""
    deadline = time.monotonic() + seconds
    while not _connect(step)["reached"]:
        if time.monotonic() > deadline:
            raise host.RuntimeFailure("not reached: " + what)


def _connect(step):
    """One exchange. A process that another thread is about to start has our last server's socket until it runs a program."""
    try:
        return traffic.connect(step)
    except OSError as e:
        if e.errno != errno.EADDRINUSE:
            raise
        return {"reached": False}


class Phases:
    """Steps that each may fail without the others: what failed, and what each left behind."""

    def __init__(self, owner, seen):
        """OWNER ends all containers; SEEN tells the state of the host."""
        self.owner, self.seen, self.known = owner, seen, seen()
        self.failures, self.failed, self.left = [], [], []

    def run(self, phase):
        """Runs one phase, named by its function."""
        name = phase.__name__.strip("_").replace("_", " ")
        try:
            phase()
        except host.RuntimeFailure as e:
            self.failures.append("%s: %s" % (name, e))
            self.failed.append(name)
        self._end_all()
        now = self.seen()
        self.left += ["%s: %s" % (name, l) for l in sorted(now - self.known)]
        self.known |= now

    def _end_all(self):
        """Ends what a phase that failed left alive, so that the next ones are not its victims."""
        try:
            self.owner.end_all()
        except host.RuntimeFailure as e:
            self.failures.append("the end of what was left: %s" % e)

    def report(self, **more):
        """The case's report."""
        return dict(more, left=self.left, failed=self.failed, failure="; ".join(self.failures) or None)
