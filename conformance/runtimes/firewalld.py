# SPDX-License-Identifier: Apache-2.0
"""The real firewalld, with a system bus of its own, in the life of containers whose sources it keeps.

    zone          a source in a zone while a container lives; its port is reached, CHECK agrees, DEL takes the source away
    reload        sources and rules are gone: CHECK says so, DEL cleans all the same
    restart       firewalld ends and another starts: the same
    panic         no packet passes and no container comes, ADD says why; afterwards the living are reached again
    end in panic  of a container that ends meanwhile firewalld keeps the sources
    stopped       firewalld ended for good in a container's life: STATUS says so, DEL cleans
"""
import os
import re
import shutil
import subprocess

from ..side_by_side import traffic
from . import host, remains
from .calls import Network, Phases, reached

DIR = "/run/lab/firewalld"
BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_type="method_call"/><allow send_type="signal"/>
<allow send_requested_reply="true" send_type="method_return"/><allow send_requested_reply="true" send_type="error"/>
<allow receive_type="method_call"/><allow receive_type="method_return"/><allow receive_type="error"/><allow receive_type="signal"/></policy>
</busconfig>
"""
ZONE = "internal"
OURS = re.compile(r"^file |^interface veth|CNI-|10\.64\.0\.\d|fd64::[0-9a-f]")
PORTS = [(8080, 80)]


def conflist():
    """A network whose addresses are sources of a zone."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.64.0.0/24"}], [{"subnet": "fd64::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}
    return {"cniVersion": "1.1.0", "name": "zoned", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "ipam": ipam},
        {"type": "firewall", "backend": "firewalld", "firewalldZone": ZONE},
        {"type": "portmap", "capabilities": {"portMappings": True}}]}


class Firewalld:
    """The bus and the daemon, unpacked, with their state below /run and /etc in memory."""

    def __init__(self, root, backend):
        self.root, self.daemon = root, None
        libraries = root + "/usr/lib/x86_64-linux-gnu"
        self.python = root + "/usr/bin/python3.11"
        self.env = dict(os.environ, GI_TYPELIB_PATH=libraries + "/girepository-1.0", LD_LIBRARY_PATH=libraries,
                        PYTHONPATH=root + "/usr/lib/python3/dist-packages", PATH=root + "/usr/sbin:" + os.environ["PATH"])
        for directory in (DIR, "/run/dbus"):
            os.makedirs(directory)
        shutil.rmtree("/etc/firewalld", ignore_errors=True)
        shutil.copytree(root + "/etc/firewalld", "/etc/firewalld")
        self._configure(FirewallBackend=backend, IPv6_rpfilter="no")
        with open(DIR + "/bus.conf", "w") as f:
            f.write(BUS)
        self.bus = subprocess.Popen(["dbus-daemon", "--config-file=%s/bus.conf" % DIR, "--nofork", "--nopidfile"],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        host.until(lambda: os.path.exists("/run/dbus/system_bus_socket"), "the system bus")

    @staticmethod
    def _configure(**values):
        path = "/etc/firewalld/firewalld.conf"
        lines = [l for l in open(path).read().splitlines() if l.split("=")[0] not in values]
        with open(path, "w") as f:
            f.write("\n".join(lines + ["%s=%s" % v for v in values.items()]) + "\n")

    def start(self):
        """Starts firewalld and waits until it is ready."""
        with open(DIR + "/log", "a") as log:
            self.daemon = subprocess.Popen(
                [self.python, "-s", self.root + "/usr/sbin/firewalld", "--nofork", "--nopid", "--log-file", DIR + "/firewalld.log",
                 "--default-config", self.root + "/usr/lib/firewalld"], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            host.until(lambda: "running" == self.command("--state", may_fail=True), "firewalld", 90)
        except host.RuntimeFailure as e:
            raise host.RuntimeFailure("%s: %s" % (e, open(DIR + "/log").read()[-2000:]))

    def stop(self):
        """Ends firewalld, as a service manager does."""
        self.daemon.terminate()
        self.daemon.wait(90)

    def command(self, *args, may_fail=False):
        """firewall-cmd; its output."""
        return host.shell(" ".join([self.python, "-s", self.root + "/usr/bin/firewall-cmd"] + list(args)), self.env, may_fail).strip()

    def sources(self):
        """The zone's sources."""
        return self.command("--zone=" + ZONE, "--list-sources").split()


def run(lab, backend):
    """Every phase with one of firewalld's backends."""
    firewalld = Firewalld(lab["firewalld"], backend)
    firewalld.start()
    firewalld.command("--zone=public", "--change-interface=wan")
    case = Case(firewalld, Network(lab["driver"], conflist()))
    try:
        return case.run()
    finally:
        for process in (firewalld.daemon, firewalld.bus):
            process.kill()
            process.wait()


class Case:
    """One run with one backend."""

    def __init__(self, firewalld, network):
        self.firewalld, self.network = firewalld, network

    def run(self):
        """What failed, what was left."""
        version = self.firewalld.command("--version")
        self.network.add("first", PORTS)
        self.network.delete("first", PORTS)
        phases = Phases(self.network, self._seen)
        for phase in (self._zone, self._reload, self._restart, self._panic, self._end_in_panic, self._stopped):
            phases.run(phase)
        return phases.report(version=version)

    def _seen(self):
        """What is of containers: firewalld's own rules and tables come and go as they must. And the sources of the zone."""
        own = {l for l in remains.seen() if OURS.search(l)}
        is_up = self.firewalld.daemon.poll() is None
        return own | {"source " + s for s in (self.firewalld.sources() if is_up else ())}

    @staticmethod
    def _reached(container):
        reached("the published port of " + container, **_to_port(container))

    def _zone(self):
        self.network.verb("STATUS", "none")
        addresses = self.network.add("c1", PORTS)
        host.expect("sources", sorted(self.firewalld.sources()), sorted(a + ("/128" if ":" in a else "/32") for a in addresses))
        self.network.verb("CHECK", "c1", PORTS)
        self._reached("c1")
        self.network.delete("c1", PORTS)
        host.expect("sources after DEL", self.firewalld.sources(), [])

    def _reload(self):
        self.network.add("c2", PORTS)
        self.firewalld.command("--reload")
        host.expect("sources after --reload", self.firewalld.sources(), [])
        host.expect("CHECK after --reload fails", bool(self.network.refusal("CHECK", "c2", PORTS)), True)
        self.network.delete("c2", PORTS)
        self._zone_of("c3")

    def _restart(self):
        self.network.add("c4", PORTS)
        self.firewalld.stop()
        self.firewalld.start()
        host.expect("CHECK after a restart fails", bool(self.network.refusal("CHECK", "c4", PORTS)), True)
        self.network.delete("c4", PORTS)
        self._zone_of("c5")

    def _zone_of(self, container):
        """A container's whole life, after a fault."""
        self.network.add(container, PORTS)
        self.network.verb("CHECK", container, PORTS)
        self._reached(container)
        self.network.delete(container, PORTS)
        host.expect("sources after DEL", self.firewalld.sources(), [])

    def _panic(self):
        self.network.add("c6", PORTS)
        self.firewalld.command("--panic-on")
        try:
            host.expect("connection in panic mode", traffic.connect(_to_port("c6"))["reached"], False)
            host.shell("ip netns add c7")
            host.expect("ADD says why", "PANIC_MODE" in (self.network.refusal("ADD", "c7") or ""), True)
            self.network.delete("c7")
        finally:
            self.firewalld.command("--panic-off")
        self._reached("c6")
        self.network.verb("CHECK", "c6", PORTS)
        self.network.delete("c6", PORTS)

    def _end_in_panic(self):
        """firewalld refuses to take sources away, too: they stay, as with the Go plugins."""
        self.network.add("c8", PORTS)
        self.firewalld.command("--panic-on")
        try:
            self.network.delete("c8", PORTS)
        finally:
            self.firewalld.command("--panic-off")
        self.network.verb("GC", "none", VALID="")

    def _stopped(self):
        self.network.add("c9", PORTS)
        self.firewalld.stop()
        says = self.network.refusal("STATUS", "none")
        self.network.delete("c9", PORTS)
        host.expect("STATUS without firewalld fails", bool(says), True)


def _to_port(container):
    return {"from": "out", "to": host.HOST, "port": 8080, "server": container, "listen": 80}
