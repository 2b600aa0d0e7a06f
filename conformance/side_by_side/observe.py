# SPDX-License-Identifier: Apache-2.0
"""Reads everything a plugin can change: links, neighbours, routes, sysctls, packet filter, connections, files.

Nothing here knows what a plugin should have done; it only takes stock.
"""
import errno
import json
import os
import subprocess
import time

from . import files, netns, packet_filter
from .shell import printed, together
from .sysctls import Sysctls

SETTLE = 1.5  # seconds; the kernel reports link changes up to one second late
CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Observer:
    """Made before anything happened, since some of what is there then is the kernel's own."""

    def __init__(self):
        self.sysctls = Sysctls()

    def state(self, namespaces):
        """The whole state: one entry per namespace, and the files."""
        out = {}
        for ns in namespaces:
            if ns != "host" and not os.path.exists(netns.path(ns)):
                continue
            try:
                with netns.inside(ns):
                    out[ns] = self._namespace()
            except OSError as e:
                if e.errno != errno.EINVAL:
                    raise  # where a namespace was is a plain file now, which shows among the files
        out["files"] = files.seen(CHECKOUT)
        return out

    def _namespace(self):
        out = _network()
        out["sysctl"] = self.sysctls.set()
        *texts, ruleset = together(list(LOOKS.values()) + ["nft -j list ruleset"])
        out.update({area: text.splitlines() for area, text in zip(LOOKS, texts)})
        for area in JSON:
            out[area] = json.loads("".join(out[area]) or "[]")
        out["qdiscs"] = _traffic_control(out["qdiscs"])
        out.update(packet_filter.seen(ruleset))
        return out


# What is asked for in every namespace; what the kernel learns by itself is not asked for, or goes in `normal`.
LOOKS = {
    "qdiscs": "tc -j qdisc show",
    "vlans": "bridge -j vlan show",
    "fdb": "bridge -j fdb show",
    "mdb": "bridge -j mdb show",
    "neighbours": "ip -j neigh show nud permanent",
    "proxies": "ip -j neigh show proxy",
    "xfrm": "ip xfrm state; ip xfrm policy",
    # The whole hash table is walked, so only if anything is in it. (`read` fails for want of a line's end: the kernel has
    # no more to say after the first byte.)
    "conntrack": "n=0; { read n </proc/sys/net/netfilter/nf_conntrack_count; } 2>/dev/null; "
                 "[ ${n:-0} = 0 ] || { conntrack -L; conntrack -L -f ipv6; } 2>/dev/null",
}
JSON = ("qdiscs", "vlans", "fdb", "mdb", "neighbours", "proxies")


# ---------------------------------------------------------------- rtnetlink

def _network():
    """Links with addresses, routes of all tables, and rules, once nothing is in flux."""
    deadline = time.monotonic() + SETTLE
    while True:
        links, routes, rules, rules6 = _dump()
        if time.monotonic() > deadline or not _in_flux(links):
            break
        time.sleep(0.02)
    return {"links": links, "routes": routes, "rules": rules + rules6}


DUMP = """ip -j -d -batch - <<'END'
addr show
route show table all
rule show
END
ip -j -d -6 rule show"""


def _dump():
    """The JSON documents that ip prints; a batch's are one after the other."""
    decoder, docs, at = json.JSONDecoder(), [], 0
    text = printed("sh", "-c", DUMP).strip()
    while at < len(text):
        doc, end = decoder.raw_decode(text, at)
        docs.append(doc)
        while end < len(text) and text[end].isspace():
            end += 1
        at = end
    if len(docs) != 4:
        raise RuntimeError("ip answered %d of 4" % len(docs))
    return docs


def _in_flux(links):
    """Whether an address is still tentative on a link that can carry packets."""
    up = {l.get("master") for l in links if l.get("operstate") == "UP"}
    for link in links:
        live = link.get("operstate") == "UP" or link.get("ifname") in up
        if live and any(a.get("tentative") for a in link.get("addr_info", [])):
            return True
    return False


def _traffic_control(qdiscs):
    """Queueing disciplines that somebody asked for, and the filters of what comes in: {link: [...]}."""
    out = {}
    for qdisc in qdiscs:
        if qdisc["kind"] == "noqueue":
            continue
        entry = out.setdefault(qdisc["dev"], [])
        entry.append(qdisc)
        if qdisc["kind"] == "ingress":
            entry += json.loads(printed("tc", "-j", "filter", "show", "dev", qdisc["dev"], "ingress") or "[]")
    return out


# What a kernel may lack, and how to find out.
FEATURES = {
    "vlan-filtering": "ip link add lab0 type bridge vlan_filtering 1 && grep -q 1 /sys/class/net/lab0/bridge/vlan_filtering",
    "legacy-iptables": "for t in iptables ip6tables; do $t-legacy -t nat -S && $t-legacy -S || exit; done",
    "dummy": "ip link add lab0 type dummy",
    "vrf": "ip link add lab0 type vrf table 9",
    "vlan": "ip link add lab0 link lab1 type vlan id 9",
    "ipvlan": "ip link add lab0 link lab1 type ipvlan",
}


def machine_facts():
    """The FEATURES that this kernel has."""
    printed("ip", "link", "add", "lab1", "type", "veth", "peer", "name", "lab2")
    out = []
    for feature, command in FEATURES.items():
        if subprocess.run(["sh", "-c", command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            out.append(feature)
        subprocess.run(["ip", "link", "del", "lab0"], stderr=subprocess.DEVNULL)
    printed("ip", "link", "del", "lab1")
    return out
