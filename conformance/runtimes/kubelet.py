# SPDX-License-Identifier: Apache-2.0
"""A real kubelet without an API server: static pods, which it makes by containerd and watches over.

    life      a pod with host ports (tcp, udp) in two families
    restart   the kubelet ends and comes back beside a living pod, which stays the same and answers all the time
    absence   a pod's manifest is taken away while the kubelet is killed: its end comes with the next kubelet
    killed    the kubelet is killed in the middle of making pods; the next one brings all of them about
    crowd     many pods at once, no address twice, and their end, at once
"""
import json
import os
import re
import signal
import subprocess
import time
import urllib.request

from ..side_by_side import netns, traffic
from . import cri, host, image, remains
from .calls import Phases
from .cri_node import Node

DIR = "/run/lab/kubelet"
MANIFESTS = DIR + "/manifests"
PODS = "http://127.0.0.1:10255/pods"
NAME = "node"
# What the machine the lane runs on may not give (control groups of version 2, a disk and memory of its own) is not asked for.
CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "staticPodPath": MANIFESTS, "address": "127.0.0.1",
    "readOnlyPort": 10255, "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": False, "enforceNodeAllocatable": [],
    "failSwapOn": False, "failCgroupV1": False, "localStorageCapacityIsolation": False, "oomScoreAdj": 0, "podLogsDir": DIR + "/logs",
    "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"}, "imageGCHighThresholdPercent": 100}
# What it and containerd say of networks and of pods' sandboxes.
OF_NETWORKS = re.compile("cni|network|sandbox|hostport", re.I)
# What both say of a pod whose making the lane cut short, and a kubelet of what it does when it ends: that depends on the moment.
# A plugin that was killed behind its answer failed without a word; then containerd may not be rid of the sandbox at once.
CUT_SHORT = re.compile(r'torn.*(signal: killed|is reserved for|failed \(add\): ")|context canceled|'
                       'encountered an error cleaning up failed sandbox.*cannot delete running task')


def run(lab):
    """Every phase; what failed, what was left."""
    os.makedirs("/etc/cni/net.d")
    with open("/etc/cni/net.d/10-pods.conflist", "w") as f:
        json.dump(cri.conflist("1.1.0"), f)
    node = Node(lab["path"], lab["runc"], is_v1=False)
    kubelet = Kubelet(node)
    case = Case(node, kubelet, lab)
    try:
        node.start()
        kubelet.start()
        said = case.run()
        warnings = [w for w in node.warnings() + kubelet.warnings() if OF_NETWORKS.search(w) and not CUT_SHORT.search(w)]
        return dict(said, version=kubelet.version(), warnings=sorted(set(warnings)))
    except host.RuntimeFailure as e:
        raise host.RuntimeFailure("%s\nkubelet: %s\ncontainerd: %s" % (e, kubelet.log_tail(), node.log_tail()))
    finally:
        kubelet.stop(signal.SIGKILL)
        node.kill()
        host.tidy("k8s.io")


class Kubelet:
    """The kubelet's process, and the folder of its manifests.

    It refuses a pod for good whose host port another one has that it has not quite ended; so no port is asked for twice.
    """

    def __init__(self, node):
        self.node, self.daemon, self.log = node, None, DIR + "/log"
        os.makedirs(MANIFESTS)
        with open(DIR + "/config.yaml", "w") as f:
            json.dump(dict(CONFIG, containerRuntimeEndpoint=node.endpoint()), f)

    def version(self):
        """What it says it is."""
        return host.shell("kubelet --version", self.node.env).split()[-1].lstrip("v")

    def start(self):
        """Starts it, and waits until it answers."""
        with open(self.log, "a") as log:
            self.daemon = subprocess.Popen(
                ["kubelet", "--config", DIR + "/config.yaml", "--root-dir", DIR + "/root", "--hostname-override", NAME],
                env=self.node.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        host.until(lambda: self.pods() is not None, "the kubelet's list of pods", 60)

    def stop(self, how=signal.SIGTERM):
        """Ends it; pods live on."""
        if self.daemon and self.daemon.poll() is None:
            self.daemon.send_signal(how)
            self.daemon.wait(30)

    def pods(self):
        """Its pods by name, as it tells them itself; None while it does not answer."""
        if self.daemon.poll() is not None:
            raise host.RuntimeFailure("the kubelet ended")
        try:
            with urllib.request.urlopen(PODS, timeout=5) as answer:
                found = json.load(answer)["items"] or ()
        except OSError:
            return None
        return {p["metadata"]["name"][:-len("-" + NAME)]: p["status"] for p in found}

    def place(self, **pods):
        """Asks for pods: by name, the ports of the host (tcp), or pairs of a port and a protocol."""
        for name, ports in pods.items():
            with open(DIR + "/" + name, "w") as f:
                json.dump(_manifest(name, ports), f)
        for name in pods:
            os.rename(DIR + "/" + name, "%s/%s.json" % (MANIFESTS, name))

    def runs(self, *names, seconds=90):
        """Waits until the named pods run; {name: addresses}."""
        host.until(lambda: all(_is_ready(p) for p in self._named(names)), "pods %s to run" % ", ".join(names), seconds)
        return {n: [a["ip"] for a in p["podIPs"]] for n, p in zip(names, self._named(names))}

    def _named(self, names):
        pods = self.pods() or {}
        return [pods.get(n, {}) for n in names]

    def withdraw(self, *names):
        """Takes manifests away, and waits until the kubelet has stopped every sandbox it made for them."""
        for name in names:
            os.unlink("%s/%s.json" % (MANIFESTS, name))
        if self.daemon.poll() is None:
            self.ended(*names)

    def ended(self, *names):
        """Waits until containerd has stopped all sandboxes of the named pods."""
        host.until(lambda: not self.node.unstopped(["%s-%s" % (n, NAME) for n in names]), "the end of %s" % ", ".join(names), 90)

    def log_tail(self):
        """The end of its log, without the usual, for a failure."""
        lines = [l for l in open(self.log).read().splitlines() if re.match(r"[EWF]\d{4} ", l)]
        return "\n".join(lines[-25:])

    def warnings(self):
        """What it warned of, without what differs from run to run."""
        lines = [l for l in open(self.log).read().splitlines() if re.match(r"[EW]\d{4} ", l)]
        return [remains.plain(re.sub(r"^(.)\S+ \S+ +\d+ ", r"kubelet \1 ", l)) for l in lines]


def _manifest(name, ports):
    ports = [p if isinstance(p, tuple) else (p, "TCP") for p in ports]
    container = {"name": "web", "image": image.NAME, "imagePullPolicy": "Never", "command": host.serving(name),
                 "ports": [{"hostPort": p, "containerPort": 80 if proto == "TCP" else 53, "protocol": proto} for p, proto in ports]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "lab"},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}


def _is_ready(status):
    containers = status.get("containerStatuses") or ()
    return status.get("phase") == "Running" and bool(status.get("podIPs")) and bool(containers) and all(c["ready"] for c in containers)


class Case:
    """One run."""

    def __init__(self, node, kubelet, lab):
        self.node, self.kubelet, self.sizes, self.times = node, kubelet, lab["crowds"], {}
        self.phases = (self._crowds,) if lab.get("timed") else (self._life, self._restart, self._absence, self._killed, self._crowds)

    def run(self):
        """All phases, behind a first pod that brings what all share."""
        self.kubelet.place(first=[8079])
        self.kubelet.runs("first")
        self.kubelet.withdraw("first")
        phases = Phases(self, remains.seen)
        for phase in self.phases:
            phases.run(phase)
        return phases.report(times=self.times)

    def end_all(self):
        """Takes away what a phase has left."""
        self.kubelet.withdraw(*(n[:-len(".json")] for n in os.listdir(MANIFESTS)))

    def _life(self):
        self.kubelet.place(web=[8080, (5353, "UDP")], neighbour=[])
        addresses = self.kubelet.runs("web", "neighbour")
        host.expect("families", [":" in a for a in addresses["web"]], [False, True])
        for seen_from, at in (("out", host.HOST), ("out", cri.HOST6), ("host", host.HOST), ("host", "127.0.0.1")):
            host.expect("port at %s from %s" % (at, seen_from), host.fetch(8080, seen_from, at), host.GREETING + "web")
        namespace = self._namespace("web")
        for at in (host.HOST, cri.HOST6):
            step = {"from": "out", "to": at, "port": 5353, "server": namespace, "listen": 53, "proto": "udp"}
            host.expect("udp to " + at, traffic.connect(step)["reached"], True)
        for at in addresses["web"]:
            host.expect("what %s says to its neighbour" % at, host.fetch(80, self._namespace("neighbour"), at), host.GREETING + "web")
        self.kubelet.withdraw("neighbour")
        host.expect("port after the neighbour's end", host.fetch(8080), host.GREETING + "web")
        self.kubelet.withdraw("web")

    def _namespace(self, name):
        return self.node.inspect(self._sandbox(name))[1]

    def _sandbox(self, name):
        """The one sandbox of a pod that is ready."""
        found = self.node.crictl("pods", "-q", "--no-trunc", "--state", "Ready", "--name", "^%s-%s$" % (name, NAME)).split()
        host.expect("sandboxes of %s that are ready" % name, len(found), 1)
        return found[0]

    def _restart(self):
        self.kubelet.place(stays=[8090])
        addresses, sandbox = self.kubelet.runs("stays"), self._sandbox("stays")
        for port, how in ((8091, signal.SIGTERM), (8092, signal.SIGKILL)):
            self.kubelet.stop(how)
            host.expect("port without the kubelet", host.fetch(8090), host.GREETING + "stays")
            self.kubelet.start()
            later = "later%d" % port
            self.kubelet.place(**{later: [port]})
            host.expect("addresses with a new kubelet", self.kubelet.runs("stays", later)["stays"], addresses["stays"])
            host.expect("sandbox with a new kubelet", self._sandbox("stays"), sandbox)
            host.expect("port with a new kubelet", host.fetch(8090), host.GREETING + "stays")
            self.kubelet.withdraw(later)
        self.kubelet.withdraw("stays")

    def _absence(self):
        self.kubelet.place(lives=[8100], goes=[8101])
        self.kubelet.runs("lives", "goes")
        self.kubelet.stop(signal.SIGKILL)
        self.kubelet.withdraw("goes")
        self.kubelet.start()
        self.kubelet.ended("goes")
        self.kubelet.runs("lives")
        host.expect("port beside a pod that has ended", host.fetch(8100), host.GREETING + "lives")
        self.kubelet.withdraw("lives")

    def _killed(self):
        """At moments when the first, the second, the third pod is being attached."""
        for count in range(1, 4):
            pods = {"torn%d-%d" % (count, i): [8100 + 10 * count + i] for i in range(4)}
            known = set(_attached())
            self.kubelet.place(**pods)
            host.until(lambda: len(set(_attached()) - known) >= count, "pods that are being attached", 60)
            self.kubelet.stop(signal.SIGKILL)
            self.kubelet.start()
            addresses = self.kubelet.runs(*pods)
            _expect_unique(addresses)
            for name, ports in pods.items():
                host.expect("port of " + name, host.fetch(ports[0]), host.GREETING + name)
            self.kubelet.withdraw(*pods)

    def _crowds(self):
        for size in self.sizes:
            self._crowd({"crowd%d-%d" % (size, i): [9000 + 100 * size + i] for i in range(size)})

    def _crowd(self, pods):
        what = "%d pod%s" % (len(pods), "s" if len(pods) > 1 else "")
        start, known = time.monotonic(), self.node.setup_seconds()
        self.kubelet.place(**pods)
        addresses = self.kubelet.runs(*pods, seconds=240)
        self.times[what + ", all running"] = (time.monotonic() - start, self.node.setup_seconds(known) if len(pods) == 1 else None)
        _expect_unique(addresses)
        for name, ports in pods.items():
            host.expect("port of " + name, host.fetch(ports[0]), host.GREETING + name)
        start = time.monotonic()
        self.kubelet.withdraw(*pods)
        self.times[what + ", all removed"] = time.monotonic() - start


def _attached():
    """The files that say which addresses are taken."""
    folder = "/var/lib/cni/networks/" + cri.NETWORK
    return [n for n in os.listdir(folder) if n[0].isdigit()]


def _expect_unique(addresses):
    seen = [a for of_one in addresses.values() for a in of_one]
    host.expect("addresses given twice", len(seen) - len(set(seen)), 0)
