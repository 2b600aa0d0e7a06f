# SPDX-License-Identifier: Apache-2.0
"""The host below an agent: what it is prepared with, what a published port answers, and faults."""
import json
import os
import shutil
import signal
import socket

from .. import host
from ...side_by_side import netns
from ...side_by_side.scenarios import OUTSIDE
from . import jobs
from .agent import CNI_CONFIG

HOST6 = "2001:db8:99::1"
THIRD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "third_party.py")
POOL = {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}]}
# Networks of /etc/cni/net.d by name.
NETWORKS = {
    "consul": [{"type": "loopback"},
               {"type": "bridge", "bridge": "lab0", "ipMasq": True, "isGateway": True, "forceAddress": True, "hairpinMode": True,
                "ipam": dict(POOL, ranges=[[{"subnet": "10.63.0.0/24"}]])},
               {"type": "firewall", "backend": "iptables", "iptablesAdminChainName": "NOMAD-ADMIN"},
               {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}, {"type": "third"}],
    "static": [{"type": "bridge", "bridge": "lab1", "isGateway": True, "ipMasq": True,
                "ipam": {"type": "static", "routes": [{"dst": "0.0.0.0/0"}]}},
               {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}],
    "macvlan": [{"type": "macvlan", "master": "wan",
                 "ipam": {"type": "host-local", "ranges": [[{"subnet": "198.51.100.0/24", "rangeStart": "198.51.100.64"}]]}}],
    "flaky": [{"type": "bridge", "bridge": "lab2", "ipMasq": True, "isGateway": True,
               "ipam": dict(POOL, ranges=[[{"subnet": "10.65.0.0/24"}]])},
              {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}, {"type": "flaky"}],
}


def prepare(bindir, packages):
    """An outside machine, the plugins in /opt/cni/bin and a third party's beside them, networks; no control groups."""
    host.shell("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0")
    host.shell("ip netns add out && ip -n out link set lo up")
    for command in OUTSIDE:
        host.shell(command)
    host.shell("ip link add lab2 type bridge")  # the network that fails cannot make it beforehand
    # With one mounted Nomad would make groups in the machine's own.
    host.shell("umount /sys; umount -l -R /sys/fs/cgroup; mount -t sysfs sysfs /sys", may_fail=True)
    host.shell("mount -t tmpfs -o mode=755 tmpfs /opt && mkdir -p %s /opt/cni/third" % host.PLUGINS)
    host.shell("mount --bind '%s' %s" % (bindir, host.PLUGINS))
    for name in ("third", "flaky"):
        shutil.copy(THIRD, "/opt/cni/third/" + name)
        os.chmod("/opt/cni/third/" + name, 0o755)
    shutil.copy(next(p for p in (packages + "/bin/busybox", packages + "/usr/bin/busybox") if os.path.exists(p)), jobs.BUSYBOX)
    os.makedirs(CNI_CONFIG)
    for name, plugins in NETWORKS.items():
        with open("%s/%s.conflist" % (CNI_CONFIG, name), "w") as f:
            json.dump({"cniVersion": "1.0.0", "name": name, "plugins": plugins}, f)


def get(address, port, namespace="out", seconds=1):
    """What a web server answers, or the error's name."""
    try:
        with netns.inside(namespace):
            s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        with s:
            s.settimeout(seconds)
            s.connect((address, port))
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            data = b""
            while part := s.recv(4096):
                data += part
    except OSError as e:
        return type(e).__name__
    return data.decode(errors="replace").split("\r\n\r\n", 1)[-1].strip()


def flush_rules():
    """Every rule of both families goes, as a careless administrator's or another tool's reload does it."""
    host.shell("nft flush ruleset")
    for program in ("iptables", "ip6tables"):
        for table in ("filter", "nat", "mangle"):
            host.shell("{0} -t {1} -F && {0} -t {1} -X".format(program, table), may_fail=True)


def unmount_namespace(alloc):
    """The file of an allocation's namespace goes; who is in the namespace stays there."""
    path = netns.path(alloc)
    host.shell("umount -l " + path)
    os.unlink(path)


def tasks():
    """The process ids of the web servers."""
    return [int(p) for p in os.listdir("/proc") if p.isdigit() and _command(p)[:2] == [jobs.BUSYBOX, "httpd"]]


def plugins():
    """The names of the plugins that run."""
    programs = [program for pid in os.listdir("/proc") if pid.isdigit() for program in _command(pid)[:1]]
    return [os.path.basename(p) for p in programs if os.path.dirname(p) == host.PLUGINS]


def _command(pid):
    try:
        with open("/proc/%s/cmdline" % pid) as f:
            return f.read().split("\0")
    except OSError:
        return []


def kill_tasks():
    """Every web server dies."""
    for pid in tasks():
        os.kill(pid, signal.SIGKILL)


def reboot(keep_run):
    """What a reboot leaves: no process, no namespace, no interface, no rule; /run/cni only where it is on a disk."""
    _kill_all()
    for name in os.listdir("/run/netns"):
        if name != "out":
            unmount_namespace(name)
    for link in json.loads(host.shell("ip -j link show")):
        if link["ifname"] not in ("lo", "wan"):
            host.shell("ip link del " + link["ifname"], may_fail=True)
    flush_rules()
    for directory in () if keep_run else ("/run/cni", "/run/cnibox"):
        shutil.rmtree(directory, ignore_errors=True)


def _kill_all():
    """Every process of this sandbox but this program and the first one."""
    for pid in [int(p) for p in os.listdir("/proc") if p.isdigit()]:
        if pid not in (1, os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
