# SPDX-License-Identifier: Apache-2.0
"""Random life on one host: pods by crictl and containers by Podman at once, faults between, Go plugins in turns with ours.

Watched all the time: no address belongs to two living containers; every published port reaches its owner, but for ports
whose rules a fault took. At the end everything is stopped, libcni's GC runs, and nothing may be left.

Faults come while the plugins under test are in place, since the Go plugins leave rules behind when a namespace is gone or
a call is killed; what they made lives through the faults all the same.
"""
import collections
import glob
import itertools
import json
import os
import random
import signal
import threading
import time

from ..side_by_side import netns
from . import cri, host, podman, remains
from .calls import Network, reached
from .cri_node import Node

PODMAN_NETWORK = "labnet"
# An address is given again after some minutes, and the host may remember the neighbour that had it. Ours announce the new one;
# what the kernel announces of one that the Go plugins attached is lost, and the host gives the old one up after eight seconds.
SOON, NEIGHBOUR = 5, 12
MOST = 5  # living containers of each runtime


def seconds(is_brief):
    """How long it goes on: CNIBOX_SOAK_SECONDS, or what fits in with the rest."""
    return int(os.environ.get("CNIBOX_SOAK_SECONDS", 30 if is_brief else 300))


class Living:
    """Who is alive, with which addresses and which published port; guards that nobody shares any."""

    def __init__(self):
        self.lock, self.members, self.ports = threading.Lock(), {}, list(range(9000, 9100))
        self.fresh = itertools.count(9100)
        self.probes = self.late = self.made = 0
        self.is_go, self.of_go = False, set()  # whether the Go plugins are in place, and whom they may have attached
        self.history = collections.deque(maxlen=2000)

    def note(self, what):
        """Remembers what happened, for who has to find out why something did not hold."""
        self.history.append("%.2f %s" % (time.monotonic(), what))

    def port(self):
        """A port that nobody uses."""
        with self.lock:
            return self.ports.pop(0)

    def born(self, name, addresses, port, namespace):
        """Notes a new container; fails when a living one has an address of it."""
        with self.lock:
            for other, (theirs, _, _) in self.members.items():
                if set(theirs) & set(addresses):
                    raise host.RuntimeFailure("address given twice: %s has %s, %s has %s" % (other, theirs, name, addresses))
            self.members[name] = (addresses, port, namespace)
            self.made += 1
            if self.is_go:
                self.of_go.add(name)
        self.note("born %s %s port %d" % (name, addresses, port))

    def leaves(self, name):
        """A container is about to end; its port is free when it has."""
        with self.lock:
            addresses, port, _ = self.members.pop(name)
        self.note("ends %s %s port %d" % (name, addresses, port))
        return port

    def gone(self, port):
        """The end has come."""
        self.note("gone port %d" % port)
        with self.lock:
            self.ports.append(port)

    def lost(self, port):
        """What was made for a port may be there still, and nobody knows it any more: another port takes its place."""
        with self.lock:
            self.ports.append(next(self.fresh))
        self.note("lost port %d" % port)

    def names(self, prefix):
        """The living ones of one runtime."""
        with self.lock:
            return [n for n in self.members if n.startswith(prefix)]

    def probe(self, name):
        """The published port of a living container reaches it."""
        with self.lock:
            member = self.members.get(name)
        if member:
            self._connect(name, member)

    def _connect(self, name, member):
        _, port, namespace = member
        start = time.monotonic()
        try:
            patience = NEIGHBOUR if name in self.of_go else SOON
            reached("port %d of %s" % (port, name), patience, **{"from": "out"}, to=host.HOST, port=port, server=namespace, listen=80)
        except (host.RuntimeFailure, OSError) as e:
            with self.lock:  # it may have ended meanwhile
                if name in self.members:
                    raise host.RuntimeFailure("probe of %s: %s\n%s%s" % (name, e, _sight(*member), "\n".join(self.history)))
        self.probes += 1
        self.late += time.monotonic() - start > SOON


def _sight(addresses, port, namespace):
    """What stands in the way of a port, for who has to find out."""
    looks = ["iptables-save -t nat | grep -wE -- 'dports? %d|%s'" % (port, "|".join(addresses)), "iptables -S FORWARD", "cat /proc/sys/net/ipv4/ip_forward",
             "ip neighbour | grep -E '%s'" % "|".join(addresses), "ip netns exec %s ip address" % namespace, "ip netns exec %s ip neighbour" % namespace,
             "conntrack -L -p tcp --dport %d" % port, "grep -l -r -F %s /run/cnibox" % addresses[0]]
    return "".join("$ %s\n%s" % (look, host.shell(look, may_fail=True)) for look in looks)


class Pods:
    """The first runtime: containerd by crictl."""

    prefix = "pod"

    def __init__(self, node):
        self.node = node

    def start(self, name, port):
        """(handle, addresses, namespace) of a new pod."""
        pod = self.node.run_pod(name, port_mappings=[{"protocol": 0, "container_port": 80, "host_port": port}])
        addresses, namespace = self.node.inspect(pod)
        return pod, addresses, namespace

    def end(self, pod):
        """Stops and removes it."""
        return self.node.remove(pod)

    def end_all(self):
        """Removes all."""
        self.node.remove(*self.node.pods())


class Containers:
    """The second runtime: Podman."""

    prefix = "container"

    def __init__(self, packages, driver):
        self.env, self.driver, self.forgotten = podman.environment(packages), driver, 0
        self.call("network", "create", "--disable-dns", "--subnet", "10.62.0.0/24", PODMAN_NETWORK)

    def call(self, *args, may_fail=False):
        """One call of Podman."""
        return host.shell(" ".join(["podman"] + ["'%s'" % a for a in args]), self.env, may_fail).strip()

    def start(self, name, port):
        """(handle, addresses, namespace) of a new container."""
        self.call("run", "-d", "--network", PODMAN_NETWORK, "--security-opt", "label=disable", "--name", name, "-p", "%d:80" % port,
                  "--rootfs", host.ROOTFS, "/bin/busybox", "sleep", "86400")
        told = json.loads(self.call("inspect", name))[0]["NetworkSettings"]
        return name, [told["Networks"][PODMAN_NETWORK]["IPAddress"]], os.path.basename(told["SandboxKey"])

    def end(self, name):
        """Stops and removes it. When DEL fails Podman says so and never calls it again: GC is for that."""
        said = self.call("rm", "-f", "-t", "0", name)
        if "Unable to clean up network" in said:
            self.forgotten += 1
            _again(self._collect)
        return said

    def _collect(self):
        """GC beside the containers that live."""
        _collect(self.driver, "/etc/cni/net.d/%s.conflist" % PODMAN_NETWORK, self.call("ps", "-aq", "--no-trunc").split())

    def end_all(self):
        """Removes all."""
        self.call("rm", "-f", "-a", "-t", "0")


class Actor(threading.Thread):
    """Starts, probes and ends containers of one runtime, at random, until told to stop."""

    def __init__(self, runtime, living, seed, until):
        super().__init__(daemon=True)
        self.runtime, self.living, self.until = runtime, living, until
        self.chance, self.handles, self.calm = random.Random(seed), {}, threading.Event()
        self.step = threading.Lock()  # held while it does something
        self.failure, self.refused = None, 0
        self.calm.set()

    def run(self):
        """Until the time is over, or something did not hold."""
        count = 0
        try:
            while time.monotonic() < self.until:
                self.calm.wait()
                with self.step:
                    count += self._act(count + 1)
        except Exception as e:  # pylint: disable=broad-except; whatever it is, the soak did not hold
            self.failure = "%s: %s: %s" % (self.runtime.prefix, type(e).__name__, e)

    def _act(self, number):
        """Something at random; whether that was a new container, of this number."""
        names = self.living.names(self.runtime.prefix)
        what = self.chance.random()
        begins = len(names) < 2 or (what < 0.4 and len(names) < MOST)
        if begins:
            self._begin("%s%d" % (self.runtime.prefix, number))
        elif what < 0.7:
            self.living.probe(self.chance.choice(names))
        else:
            self.finish(self.chance.choice(names))
        return begins

    def _begin(self, name):
        """A new container. A fault may make that fail; then the runtime must be able to clean."""
        port = self.living.port()
        try:
            self.handles[name], addresses, namespace = self.runtime.start(name, port)
        except (host.RuntimeFailure, ValueError):
            self.refused += 1
            self.living.lost(port)
            return
        self.living.born(name, addresses, port, namespace)

    def finish(self, name):
        """Ends a container; again when a fault came between."""
        port = self.living.leaves(name)
        self.living.note("end of %s: %s" % (name, _again(lambda: self.runtime.end(self.handles[name]))))
        self.living.gone(port)


def _again(what):
    """Does something that a fault may come between, until it comes about."""
    for left in range(39, -1, -1):
        try:
            return what()
        except host.RuntimeFailure:
            if not left:
                raise
            time.sleep(0.25)


class Faults:
    """What goes wrong meanwhile, and which plugins are in place."""

    def __init__(self, lab, node, actors):
        self.lab, self.node, self.actors = lab, node, actors
        self.chance, self.done = random.Random(lab["seed"]), {}

    def act(self):
        """One fault, noted by name."""
        fault = self.chance.choice((self._runtime_killed, self._plugin_killed, self._plugin_killed, self._namespace_removed, self._rules_flushed))
        name = fault.__name__.strip("_").replace("_", " ")
        self.note(name)
        fault()
        self.done[name] = self.done.get(name, 0) + 1

    def note(self, what):
        """Remembers what was done."""
        self.actors[0].living.note("fault: " + what)

    def go_plugins(self, seconds):
        """Some time with the Go plugins, without faults."""
        self.note("Go plugins come")
        self.actors[0].living.is_go = True
        host.shell("mount --bind '%s' %s" % (self.lab["go"], host.PLUGINS))
        time.sleep(seconds)
        self._pause()
        host.shell("umount " + host.PLUGINS)
        self.note("Go plugins go")
        self.actors[0].living.is_go = False
        self._go_on()

    def _pause(self):
        """Lets everybody finish what they do, however long that takes: who is about to begin does not live yet."""
        for actor in self.actors:
            actor.calm.clear()
        for actor in self.actors:
            actor.step.acquire()

    def _go_on(self):
        for actor in self.actors:
            actor.step.release()
            actor.calm.set()

    def _runtime_killed(self):
        self.node.kill()
        time.sleep(self.chance.uniform(0, 0.5))
        self.node.start()

    def _plugin_killed(self):
        """The first call of a plugin that is seen within a second."""
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            for link in glob.glob("/proc/[0-9]*/exe"):
                if os.path.basename(_target(link)) == "cnibox" and self._kill(link.split("/")[2]):
                    return

    def _kill(self, pid):
        """Kills a process; whether it was still there. It stands still while its name is noted."""
        try:
            os.kill(int(pid), signal.SIGSTOP)
            self.note("kills " + _call(pid))
            os.kill(int(pid), signal.SIGKILL)
        except (ProcessLookupError, FileNotFoundError):
            return False
        return True

    def _namespace_removed(self):
        """A living pod's network namespace is taken from under it; the pod is ended at once, as a kubelet would."""
        actor = self.actors[0]
        self._pause()
        names = actor.living.names("pod")
        if names:
            name = self.chance.choice(names)
            path = netns.path(actor.living.members[name][2])
            host.shell("umount %s; rm -f %s" % (path, path), may_fail=True)
            actor.finish(name)
        self._go_on()

    def _rules_flushed(self):
        """All rules of one table go; what lost its rules is ended."""
        self._pause()
        host.shell("iptables -t %s -F" % self.chance.choice(("nat", "filter")))
        for actor in self.actors:
            for name in actor.living.names(actor.runtime.prefix):
                actor.finish(name)
        self._go_on()


def _call(pid):
    """Which plugin a process is, with which verb and for whom."""
    with open("/proc/%s/cmdline" % pid, encoding="utf-8") as line, open("/proc/%s/environ" % pid, encoding="utf-8") as environ:
        names = [v for v in environ.read().split("\0") if v.startswith(("CNI_COMMAND", "CNI_CONTAINERID"))]
        return " ".join(line.read().split("\0")[:1] + names)


def _target(link):
    try:
        return os.readlink(link)
    except OSError:
        return ""


def run(lab):
    """The whole soak; the report."""
    os.makedirs("/etc/cni/net.d")
    with open("/etc/cni/net.d/10-pods.conflist", "w") as f:
        json.dump(cri.conflist("1.1.0"), f)
    node, living = Node(lab["path"], lab["runc"], is_v1=False), Living()
    containers = Containers(lab["packages"], lab["driver"])
    node.start()
    until = time.monotonic() + lab["seconds"]
    actors = [Actor(r, living, lab["seed"] + i, until) for i, r in enumerate((Pods(node), containers))]
    for actor in actors:
        handle = actor.runtime.start(actor.runtime.prefix + "0", 9999)[0]
        actor.runtime.end(handle)
    known, faults = remains.seen(), Faults(lab, node, actors)
    for actor in actors:
        actor.start()
    try:
        _storm(faults, actors, until)
        return _end(lab, node, actors, faults, known)
    finally:
        node.kill()
        host.tidy("cnibox-lab", "libpod_parent")


def _storm(faults, actors, until):
    """Faults, and every few of them a time with the Go plugins, until the time is over."""
    turn = 0
    while time.monotonic() < until and all(a.is_alive() for a in actors):
        time.sleep(faults.chance.uniform(0.5, 2))
        turn += 1
        faults.go_plugins(4) if turn % 4 == 0 else faults.act()
    for actor in actors:  # all of them, where one has failed
        actor.until = 0
        actor.calm.set()
    for actor in actors:
        actor.join(120)


def _end(lab, node, actors, faults, known):
    """Everything is stopped; what is left after GC."""
    failures = [a.failure for a in actors if a.failure] + ["%s did not end" % a.runtime.prefix for a in actors if a.is_alive()]
    for actor in actors:
        actor.runtime.end_all()
    for path in glob.glob("/etc/cni/net.d/*.conflist"):
        _collect(lab["driver"], path)
    for name in os.listdir("/run/netns"):  # a runtime that was killed forgets them
        if name != "out":
            host.shell("umount /run/netns/%s; rm -f /run/netns/%s" % (name, name), may_fail=True)
    living = actors[0].living
    said = "%d containers, %d probes (%d late), %d refused at a fault, %d forgotten by Podman when DEL failed, %s" % (
        living.made, living.probes, living.late, sum(a.refused for a in actors), actors[1].runtime.forgotten,
        ", ".join("%s: %d" % f for f in sorted(faults.done.items())))
    return {"left": sorted(remains.seen() - known), "failure": "; ".join(failures) or None, "version": node.version() + ", podman " +
            actors[1].runtime.call("--version").split()[-1], "notes": [said]}


def _collect(driver, path, living=()):
    """GC of a network, which its version may be too old for, with those containers alive."""
    with open(path) as f:
        conf = dict(json.load(f), cniVersion="1.1.0")
    Network(driver, conf, "/var/lib/cni").verb("GC", "none", VALID=" ".join("%s/eth0" % c for c in living))
