# SPDX-License-Identifier: Apache-2.0
"""The host the runtimes work on: a sandbox with an outside machine, a root file system, and a look at what is left."""
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import time

from ..side_by_side import netns, packet_filter
from ..side_by_side.scenarios import OUTSIDE

ROOTFS = "/run/lab/rootfs"
GREETING = "hello from "
HOST = "198.51.100.1"  # the host as the outside sees it
PLUGINS = "/opt/cni/bin"


class RuntimeFailure(Exception):
    """A runtime, or the network it made, did not do what it should."""


def shell(command, env=None, may_fail=False, timeout=60):
    """Runs a command line; its output. Everything a runtime says goes into the failure."""
    p = subprocess.run(["sh", "-c", command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                       stdin=subprocess.DEVNULL)
    if p.returncode and not may_fail:
        raise RuntimeFailure("%s: exit %d: %s" % (command, p.returncode, p.stdout[-1500:]))
    return p.stdout


def prepare(bindir, packages, *more):
    """An outside machine, control groups, the plugins in /opt/cni/bin, a root file system of busybox; libraries of MORE."""
    shell("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0")
    shell("ip netns add out && ip -n out link set lo up")
    for command in OUTSIDE:
        shell(command)
    _control_groups()
    _libraries(packages, *more)
    shell("mount -t tmpfs tmpfs /opt && mkdir -p %s && mount --bind '%s' %s" % (PLUGINS, bindir, PLUGINS))
    for d in ("bin", "proc", "sys", "dev", "etc", "tmp", "run", "var", "www"):
        os.makedirs(os.path.join(ROOTFS, d))
    for busybox in ("bin/busybox", "usr/bin/busybox"):
        if os.path.exists(os.path.join(packages, busybox)):
            shutil.copy(os.path.join(packages, busybox), ROOTFS + "/bin/busybox")
    os.symlink("busybox", ROOTFS + "/bin/sh")
    for f in ("passwd", "group", "hosts", "resolv.conf"):
        open(os.path.join(ROOTFS, "etc", f), "w").close()


def _control_groups():
    """Mounts what the machine uses: one tree, or (version 1) one per controller."""
    v1 = [l.split()[0] for l in open("/proc/cgroups").read().splitlines()[1:] if l.split()[1] != "0"]
    if not v1:
        shell("mount -t cgroup2 cgroup2 /sys/fs/cgroup")
        return
    shell("mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup")
    for controller in v1:
        shell("mkdir /sys/fs/cgroup/{0} && mount -t cgroup -o {0} cgroup /sys/fs/cgroup/{0}".format(controller))
    if ":name=systemd:" in open("/proc/self/cgroup").read():  # runc joins it where there is one
        shell("mkdir /sys/fs/cgroup/systemd && mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd")


def _libraries(*roots):
    """Lets unpacked programs find unpacked libraries, also where a runtime clears the environment."""
    with open("/etc/ld.so.conf.d/lab.conf", "w") as f:
        f.write("".join(d + "\n" for root in roots for d in glob.glob(root + "/usr/lib/*-linux-gnu") + glob.glob(root + "/lib/*-linux-gnu")))
    shell("[ ! -d /var/cache/ldconfig ] || mount -t tmpfs tmpfs /var/cache/ldconfig; ldconfig")


def until(condition, what, seconds=20):
    """Waits for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeFailure("waited in vain for " + what)
        time.sleep(0.05)


def tidy(*groups):
    """Removes the empty control groups that a runtime keeps."""
    for group in groups:
        shell("find /sys/fs/cgroup -depth -type d -path '*/%s*' -exec rmdir {} + 2>/dev/null" % group, may_fail=True)


def serving(name):
    """A root file system's web server that says who it is, as a command line for the container."""
    return ["/bin/busybox", "sh", "-c", "mkdir -p /tmp/www && echo '%s%s' > /tmp/www/index.html && exec busybox httpd -f -p 80 -h /tmp/www" % (GREETING, name)]


def fetch(port, namespace="out", address=HOST, wait=10):
    """What a web server answers on a published port; retried until it is up."""
    deadline = time.monotonic() + wait
    while True:
        try:
            return _get(namespace, address, port)
        except OSError as e:
            if time.monotonic() > deadline:
                raise RuntimeFailure("no answer from %s:%d as seen from %s: %s" % (address, port, namespace, e))
            time.sleep(0.1)


def _get(namespace, address, port):
    with netns.inside(namespace):
        s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    with s:
        s.settimeout(2)
        s.connect((address, port))
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        data = b""
        while True:
            part = s.recv(4096)
            if not part:
                return data.decode().split("\r\n\r\n", 1)[-1].strip()
            data += part


def expect(what, got, want):
    """One fact that must hold."""
    if got != want:
        raise RuntimeFailure("%s: got %r, expected %r" % (what, got, want))


def left_over(reservations):
    """What containers left on the host: interfaces, rules of theirs, reservations, cached results."""
    out = []
    links = json.loads(shell("ip -j link show"))
    out += ["interface " + l["ifname"] for l in links if l["ifname"].startswith(("veth", "bwp"))]
    for program in ("iptables-save", "ip6tables-save"):
        for line in shell(program).splitlines():
            if re.search(r"CNI-DN-|CNI-[0-9a-f]{24}|-[sd] (10\.\d+\.\d+\.\d+/32|fd[0-9a-f:]+/128)", line):
                out.append(program + ": " + line)
    out += ["nft: " + json.dumps(r["expr"]) for t in packet_filter.nft(shell("nft -j list ruleset")).values() for k, rules in t.items() if k.endswith(" rules")
            for r in rules if r.get("comment")]
    for directory in (reservations, "/var/lib/cni/results"):
        for name in os.listdir(directory) if os.path.isdir(directory) else ():
            if name != "lock" and not name.startswith("last_reserved_ip."):
                out.append("file %s/%s" % (directory, name))
    return out
