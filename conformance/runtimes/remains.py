# SPDX-License-Identifier: Apache-2.0
"""What a host holds because of containers, and what of it is there after their end that was not there before."""
import json
import os
import re

from ..side_by_side import packet_filter
from . import host

FOLDERS = ("/var/lib/cni", "/run/cni", "/run/cnibox", "/run/netns", "/run/firewalld")
# Files of which every network has one.
SHARED = re.compile(r"/(lock|last_reserved_ip\.\d+|.*\.lock)$|^/run/cnibox/(inventory-[^/]+-\d+-\d+|host-local/[^/]+)$")


def seen():
    """Interfaces, rules and files of the host, one line each."""
    out = {"interface " + l["ifname"] for l in json.loads(host.shell("ip -j link show 2>/dev/null"))}
    for program in ("iptables-save", "ip6tables-save"):
        table = ""
        for line in host.shell(program).splitlines():
            table = line if line.startswith("*") else table
            if line.startswith(("-A", ":")):
                out.add("%s %s %s" % (program, table, re.sub(r" \[\d+:\d+\]$", "", line)))
    out |= {"nft %s: %s: %s" % (name, kind, json.dumps(item, sort_keys=True))
            for name, table in packet_filter.nft(host.shell("nft -j list ruleset")).items() for kind, items in table.items()
            for item in (items if isinstance(items, list) else [items])}
    return out | {"file " + path for path in _files()}


def _files():
    for folder in FOLDERS:
        for directory, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(directory, name)
                if not SHARED.search(path):
                    yield path


def since(before):
    """What is there now and was not in BEFORE."""
    return sorted(seen() - before)


def plain(line):
    """A line without times and durations, identifiers, addresses and process numbers, to compare runs by."""
    line = re.sub(r"^time=\S+ ", "", line.strip())
    for pattern, word in ((r"[0-9a-f]{32,}", "ID"), (r"cni-[0-9a-f-]{36}", "NETNS"), (r"\b(CNI|CNI-DN)-[0-9a-f]{12,}", "CHAIN"), (r"\b[0-9a-f]{12}\b", "ID"),
                          (r"[0-9a-f]*:[0-9a-f:]+", "V6"), (r"\d+(\.\d+){3}(/\d+)?", "V4"), (r"\b(veth|bwp)[0-9a-f]+", "LINK"), (r"\b\d+(\.\d+)?(ns|µs|ms|s)\b", "TIME"), (r"\d+", "N")):
        line = re.sub(pattern, word, line)
    return line
