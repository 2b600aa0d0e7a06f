# SPDX-License-Identifier: Apache-2.0
"""Looks all the time whether two network namespaces hold one address."""
import contextlib
import glob
import os
import re
import subprocess
import threading
import time

from .. import host
from ...side_by_side import netns

PERIOD = 0.1  # seconds between two looks


class Watch(threading.Thread):
    """Reads the addresses of every namespace that a process is in or a file holds, until it is told to stop."""

    def __init__(self):
        super().__init__(daemon=True)
        self.twice, self.looks, self._over = set(), 0, threading.Event()

    def run(self):
        """Looks until the end."""
        while not self._over.wait(PERIOD):
            self.look()

    def stop(self):
        """The end; every address that two namespaces had."""
        self._over.set()
        self.join()
        return sorted(self.twice)

    def look(self):
        """One look. Whoever seems to have the same address is read again, both at once: it may have been given on in between."""
        holders = {}
        with contextlib.ExitStack() as open_files:
            for machine, path in namespaces(open_files):
                for address in addresses(path):
                    holders.setdefault((machine, address), []).append(path)
            for (_, address), paths in holders.items():
                if len(paths) > 1 and sum(address in addresses(p) for p in paths) > 1:
                    self.twice.add(address)
        self.looks += 1


def proven():
    """Fails unless an address in two namespaces is noticed, of which one has no file any more."""
    host.shell("ip netns add eye && ip -n eye addr add 10.99.0.1/32 dev lo && ip -n eye link set lo up")
    other = ["unshare", "--net", "sh", "-c", "ip addr add 10.99.0.1/32 dev lo; ip link set lo up; exec sleep 60"]
    with subprocess.Popen(other, stdin=subprocess.DEVNULL) as p:
        watch, deadline = Watch(), time.monotonic() + 5
        while not watch.twice and time.monotonic() < deadline:
            watch.look()
        p.kill()
    host.shell("ip netns del eye")
    host.expect("addresses in two places that were noticed", watch.twice, {"10.99.0.1"})


def namespaces(open_files):
    """For each network namespace the machine it is on, which is that of its processes' mounts, and a path that stays.

    A process may be in another namespace at the next moment, as plugins are; so what is found is held open.
    """
    found = {}
    for path in glob.glob("/proc/[0-9]*/ns/net") + glob.glob("/run/netns/*"):
        process = path[:-len("/ns/net")] if path.startswith("/proc") else "/proc/self"
        try:
            if os.stat(path).st_ino not in found:
                handle = open_files.enter_context(open(path)).fileno()
                found.setdefault(os.fstat(handle).st_ino, (os.stat(process + "/ns/mnt").st_ino, "/proc/self/fd/%d" % handle))
        except OSError:
            pass
    return found.values()


def addresses(path):
    """The global addresses that a namespace answers for; none when it has gone or is none."""
    try:
        with netns.at(path):
            with open("/proc/thread-self/net/fib_trie") as f:
                four = set(re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", f.read()))
            with open("/proc/thread-self/net/if_inet6") as f:
                six = {l.split()[0] for l in f if l.split()[3] == "00"}
    except OSError:
        return set()
    return {a for a in four | six if not a.startswith("127.")}
