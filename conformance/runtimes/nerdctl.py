# SPDX-License-Identifier: Apache-2.0
"""nerdctl: networks of its own in two families, published ports, chosen addresses, isolation, pairs that know each other by name.

    life        two containers on a network: -p for tcp and udp, --ip, --mac-address, names, both families
    isolation   containers of two networks do not reach each other: nerdctl asks the firewall plugin for its version first
    ends        a container that is killed, one whose network namespace loses its interface, one that is restarted
    restart     containerd ends and comes back beside living containers
    crowd       many at once, no address twice
    removal     `network rm` takes the bridge away
"""
import concurrent.futures
import contextlib
import json
import os
import re
import time

from ..side_by_side import netns, traffic
from . import host, image, remains
from .calls import Phases
from .cri_node import DIR, SOCKET, Node

MAC = "02:42:ac:11:00:99"
TOML = """address = "{socket}"
namespace = "lab"
snapshotter = "overlayfs"
cgroup_manager = "cgroupfs"
cni_path = "{plugins}"
cni_netconfpath = "/etc/cni/net.d"
data_root = "{dir}/nerdctl"
"""


def run(lab):
    """Every phase; what failed, what was left."""
    os.makedirs("/etc/cni/net.d")
    with open("/etc/cni/net.d/10-pods.conflist", "w") as f:  # for containerd's own CRI, which wants one to be ready
        json.dump({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "loopback"}]}, f)
    node = Node(lab["path"] + ":" + os.path.dirname(lab["runc"]), lab["runc"], is_v1=False)
    with open(DIR + "/nerdctl.toml", "w") as f:
        f.write(TOML.format(socket=SOCKET, plugins=host.PLUGINS, dir=DIR))
    node.env["NERDCTL_TOML"] = DIR + "/nerdctl.toml"
    case = Case(node, lab)
    try:
        node.start()
        host.shell("ctr -a %s -n lab images import --digests=false %s/image.tar" % (SOCKET, DIR), node.env)
        return case.run()
    except host.RuntimeFailure as e:
        raise host.RuntimeFailure("%s\ncontainerd: %s" % (e, node.log_tail()))
    finally:
        node.kill()
        host.tidy("lab")


class Case:
    """One run."""

    def __init__(self, node, lab):
        self.node, self.sizes = node, lab["crowds"]
        self.phases = (self._crowds,) if lab.get("timed") else (self._life, self._isolation, self._ends, self._restart, self._crowds)
        self.said, self.times = [], {}

    def run(self):
        """All phases on two networks."""
        self.nerdctl("network", "create", "labnet", "--subnet", "10.66.0.0/24", "--ipv6", "--subnet", "fd66::/64")
        self.nerdctl("network", "create", "othernet", "--subnet", "10.67.0.0/24")
        for network in ("labnet", "othernet"):
            self._start("first", "-p", "8080:80", network=network)
            self._end("first")
        phases = Phases(self, remains.seen)
        for phase in self.phases:
            phases.run(phase)
        phases.run(self._removal)
        version = self.nerdctl("--version").split()[-1]
        return phases.report(version=version, warnings=self._warnings(), times=self.times)

    def end_all(self):
        """Removes every container that is still there."""
        names = self.nerdctl("ps", "-aq").split()
        if names:
            self._end(*names)

    def nerdctl(self, *args, may_fail=False):
        """One call; its output. Of a crowd the last waits for the network of all others, which get theirs one by one."""
        line = " ".join(["nerdctl"] + ["'%s'" % a.replace("'", "'\\''") for a in args])
        out = host.shell(line, self.node.env, may_fail, timeout=300).strip()
        self.said += out.splitlines()
        return out

    def _warnings(self):
        return sorted({remains.plain(l) for l in self.said if re.search(r"level=(warn|warning|error|fatal)", l)})

    def _start(self, name, *args, network="labnet"):
        """Runs a web server; how long that took."""
        start = time.monotonic()
        self.nerdctl("run", "-d", "--pull", "never", "--name", name, "--network", network, "--security-opt", "seccomp=unconfined",
                     *args, "--entrypoint", "/bin/busybox", image.NAME, *host.serving(name)[1:])
        return time.monotonic() - start

    def _end(self, *names):
        self.nerdctl("rm", "-f", *names)

    def _inspect(self, name):
        """(IPv4 address, IPv6 address, MAC) of a container."""
        settings = json.loads(self.nerdctl("inspect", "--mode", "dockercompat", name))[0]["NetworkSettings"]
        network = next(iter(settings["Networks"].values()))
        return network["IPAddress"], network.get("GlobalIPv6Address"), network["MacAddress"]

    def _pid(self, name):
        return json.loads(self.nerdctl("inspect", "--mode", "dockercompat", name))[0]["State"]["Pid"]

    @contextlib.contextmanager
    def _namespace(self, name):
        """A container's network namespace, under its name for the length of the block."""
        path = netns.path(name)
        open(path, "w").close()
        host.shell("mount --bind /proc/%d/ns/net %s" % (self._pid(name), path))
        try:
            yield name
        finally:
            host.shell("umount %s && rm %s" % (path, path))

    # ------------------------------------------------------------ phases

    def _life(self):
        self._start("one", "-p", "8080:80", "-p", "5353:53/udp", "--ip", "10.66.0.99", "--mac-address", MAC)
        self._start("two")
        address, address6, mac = self._inspect("one")
        host.expect("address and MAC asked for", (address, mac), ("10.66.0.99", MAC))
        for seen_from, at in (("out", host.HOST), ("host", host.HOST), ("host", "127.0.0.1")):
            host.expect("port at %s from %s" % (at, seen_from), host.fetch(8080, seen_from, at), host.GREETING + "one")
        with self._namespace("one"):
            step = {"from": "out", "to": host.HOST, "port": 5353, "server": "one", "listen": 53, "proto": "udp"}
            host.expect("udp", traffic.connect(step)["reached"], True)
        lines = self.nerdctl("exec", "two", "/bin/busybox", "cat", "/etc/hosts").splitlines()
        host.expect("a neighbour's address by its name", [l.split()[0] for l in lines if "one" in l.split() and "." in l.split()[0]], [address])
        with self._namespace("two"):
            for at in (address, address6):
                host.expect("what %s says to its neighbour" % at, host.fetch(80, "two", at), host.GREETING + "one")
        self._end("two")
        host.expect("port after the neighbour's end", host.fetch(8080), host.GREETING + "one")
        self._end("one")

    def _isolation(self):
        self._start("here")
        self._start("there", network="othernet")
        address = self._inspect("here")[0]
        with self._namespace("there"):
            host.expect("whether another network's container is reached", _is_reached("there", address), False)
        self._end("here", "there")

    def _ends(self):
        self._start("killed", "-p", "8080:80")
        self._start("bare", "-p", "8081:80")
        os.kill(self._pid("killed"), 9)
        host.shell("nsenter -t %d -n ip link del eth0" % self._pid("bare"))
        self._end("killed", "bare")
        self._start("again", "-p", "8080:80")
        self.nerdctl("restart", "-t", "0", "again")
        host.expect("port after a restart", host.fetch(8080), host.GREETING + "again")
        self.nerdctl("stop", "-t", "0", "again")
        self.nerdctl("start", "again")
        host.expect("port after stop and start", host.fetch(8080), host.GREETING + "again")
        self._end("again")

    def _restart(self):
        self._start("stays", "-p", "8080:80")
        self.node.kill()
        host.expect("port without containerd", host.fetch(8080), host.GREETING + "stays")
        self.node.start()
        self._start("later")
        host.expect("addresses", len({self._inspect(n)[0] for n in ("stays", "later")}), 2)
        host.expect("port with a new containerd", host.fetch(8080), host.GREETING + "stays")
        self._end("stays", "later")

    def _crowds(self):
        for size in self.sizes:
            self._crowd(["crowd%d" % i for i in range(size)])

    def _crowd(self, names):
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            seconds = list(pool.map(lambda n: self._start(n[1], "-p", "%d:80" % (9000 + n[0])), enumerate(names)))
            what = "%d container%s" % (len(names), "s" if len(names) > 1 else "")
            self.times[what + ", all running"] = time.monotonic() - start
            self.times[what + ", one, on average"] = sum(seconds) / len(names)
            seen = [self._inspect(n)[0] for n in names]
            host.expect("addresses given twice", len(seen) - len(set(seen)), 0)
            for i in {0, len(names) - 1}:
                host.expect("port of container %d" % i, host.fetch(9000 + i), host.GREETING + names[i])
            start = time.monotonic()
            list(pool.map(self._end, names))
            self.times[what + ", all removed"] = time.monotonic() - start

    def _removal(self):
        self.nerdctl("network", "rm", "labnet", "othernet")
        links = json.loads(host.shell("ip -j link show"))
        host.expect("bridges after network rm", [l["ifname"] for l in links if l["ifname"].startswith("br-")], [])


def _is_reached(namespace, address):
    try:
        host.fetch(80, namespace, address, wait=0)
    except host.RuntimeFailure:
        return False
    return True
