# SPDX-License-Identifier: Apache-2.0
"""Everything below /proc/sys/net of the namespace that the caller is in, as far as somebody has set it."""
import os

NET = "/proc/sys/net"
# Counters and sizes that follow the kernel's own work.
MOVING = ("netfilter/nf_conntrack_count",)


class Sysctls:
    """Knows what a fresh namespace has; made before anything happened in it."""

    def __init__(self):
        self.fresh = dict(_flat())

    def set(self):
        """Values of interfaces and neighbours that differ from the namespace's defaults, the forwarding switches, and
        the others where they differ from those of a fresh namespace."""
        out = {"net/ipv4/ip_forward": _read(NET + "/ipv4/ip_forward")}
        for family in ("ipv4", "ipv6"):
            for kind in ("conf", "neigh"):
                out.update(_unlike_default("%s/%s" % (family, kind)))
        for key, value in _flat():
            if key in self.fresh and self.fresh[key] != value:
                out["net/" + key] = value
        return out


def _unlike_default(kind):
    base = "%s/%s/" % (NET, kind)
    default = {k: _read(base + "default/" + k) for k in _names(base + "default")}
    for interface in _names(base):
        for key in _names(base + interface):
            value = _read(base + interface + "/" + key)
            if value != default.get(key) or interface == "default" and key in ("forwarding", "accept_ra"):
                yield "net/%s/%s/%s" % (kind, interface, key), value


def _flat():
    """All that is not an interface's."""
    for directory, dirs, names in os.walk(NET):
        place = directory[len(NET) + 1:]
        if place in ("ipv4", "ipv6"):
            dirs[:] = [d for d in dirs if d not in ("conf", "neigh")]
        for name in names:
            key = os.path.join(place, name)
            if key not in MOVING:
                yield key, _read(os.path.join(directory, name))


def _names(directory):
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _read(path):
    # Thousands of them at each look: files as Python opens them take three times as long.
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None  # an interface that just went
    try:
        return os.read(handle, 4096).decode().strip()
    except OSError:
        return None  # stable_secret when unset
    finally:
        os.close(handle)
