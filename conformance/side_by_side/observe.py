# SPDX-License-Identifier: Apache-2.0
"""Reads everything a plugin can change: links, routes, sysctls, packet filter, files.

Nothing here knows what a plugin should have done; it only takes stock.
"""
import errno
import json
import os
import stat
import subprocess
import time

from . import netns

# The tables iptables-nft keeps; iptables-save shows them better than nft.
IPTABLES = {"filter", "nat", "mangle", "raw", "security"}
# The sandbox's own things below /run.
OWN = ("/run/lab", "/run/netns", "/run/lock")
SETTLE = 1.5  # seconds; the kernel reports link changes up to one second late


def state(namespaces, conntrack):
    """The whole state: one entry per namespace, and the files."""
    out = {}
    for ns in namespaces:
        if ns != "host" and not os.path.exists(netns.path(ns)):
            continue
        try:
            with netns.inside(ns):
                out[ns] = _namespace(ns, conntrack)
        except OSError as e:
            if e.errno != errno.EINVAL:
                raise  # where a namespace was is a plain file now, which shows among the files
    out["files"] = _files(("/run", "/var/lib/cni", "/etc/cni"))
    return out


def _namespace(ns, conntrack):
    out = _network()
    out["sysctl"] = _sysctls()
    commands = ["nft -j list ruleset", "tc -j qdisc show"]
    if ns == "host":
        commands += ["bridge -j vlan show", "iptables-save", "ip6tables-save"]
        commands += ["conntrack -L; conntrack -L -f ipv6"] if conntrack else []
    rules, qdiscs, *more = _together(commands)
    out["nft"], out["qdiscs"] = nft(rules), _traffic_control(qdiscs)
    if ns == "host":
        out["vlans"], out["iptables"], out["ip6tables"] = json.loads(more[0] or "[]"), _iptables(more[1]), _iptables(more[2])
        if conntrack:
            out["conntrack"] = more[3].splitlines()
    return out


def _together(commands):
    """What each of COMMANDS prints. One process for all of them: starting one from here costs more than most of them."""
    mark = "=====\n"
    return _run("sh", "-c", "\necho =====\n".join("%s 2>/dev/null" % c for c in commands)).split(mark)


def _run(*argv, stdin=""):
    p = subprocess.run(argv, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return p.stdout


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
    text = _run("sh", "-c", DUMP).strip()
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
    for qdisc in json.loads(qdiscs or "[]"):
        if qdisc["kind"] == "noqueue":
            continue
        entry = out.setdefault(qdisc["dev"], [])
        entry.append(qdisc)
        if qdisc["kind"] == "ingress":
            entry += json.loads(_run("tc", "-j", "filter", "show", "dev", qdisc["dev"], "ingress") or "[]")
    return out


# ---------------------------------------------------------------- sysctls

def _sysctls():
    """Per-interface values that differ from the namespace's defaults, and the forwarding switches."""
    out = {"net/ipv4/ip_forward": _read("/proc/sys/net/ipv4/ip_forward")}
    for family in ("ipv4", "ipv6"):
        base = "/proc/sys/net/%s/conf/" % family
        default = {k: _read(base + "default/" + k) for k in _names(base + "default")}
        for interface in _names(base):
            for key in _names(base + interface):
                value = _read(base + interface + "/" + key)
                if value != default.get(key) or interface == "default" and key in ("forwarding", "accept_ra"):
                    out["net/%s/conf/%s/%s" % (family, interface, key)] = value
    return out


def _names(directory):
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _read(path):
    try:
        with open(path) as f:
            return f.read().strip()
    except OSError:
        return None  # stable_secret when unset, or an interface that just went


# ---------------------------------------------------------------- packet filter

def _iptables(saved):
    """{table: {chain: {policy, rules}}}; order of rules kept, order of chains not."""
    out, table = {}, None
    for line in saved.splitlines():
        if line.startswith("*"):
            table = out[line[1:]] = {}
        elif line.startswith(":"):
            chain, policy = line[1:].split(" ")[:2]
            table[chain] = {"policy": policy, "rules": []}
        elif line.startswith("-A "):
            table[line.split(" ", 2)[1]]["rules"].append(line)
    # iptables makes a table's built-in chains as soon as it looks at the table;
    # empty ones with the default policy mean nothing.
    for name in list(out):
        out[name] = {c: v for c, v in out[name].items() if v["policy"] != "ACCEPT" or v["rules"]}
        if not out[name]:
            del out[name]
    return out


def nft(ruleset):
    """Tables that are not iptables': {family table: {"": table, chain: ..., "chain rules": [...]}}."""
    out = {}
    for entry in json.loads(ruleset or '{"nftables": []}')["nftables"]:
        (kind, item), = entry.items()
        if kind == "metainfo":
            continue
        item.pop("handle", None)
        name = item["name"] if kind == "table" else item["table"]
        if item["family"] in ("ip", "ip6") and name in IPTABLES:
            continue
        table = out.setdefault(item["family"] + " " + name, {})
        if kind == "table":
            table["table"] = item
        elif kind == "rule":
            table.setdefault(item["chain"] + " rules", []).append(item)
        else:
            table[kind + " " + item["name"]] = item
    return out


# ---------------------------------------------------------------- files

def _files(roots):
    """Mode and content of everything below ROOTS."""
    out = {}
    for root in roots:
        for directory, dirs, files in os.walk(root):
            dirs[:] = [d for d in dirs if not os.path.join(directory, d).startswith(OWN)]
            for name in dirs + files:
                path = os.path.join(directory, name)
                out[path] = _file(path)
    return out


def _file(path):
    st = os.lstat(path)
    entry = {"mode": oct(st.st_mode)}
    if stat.S_ISLNK(st.st_mode):
        entry["target"] = os.readlink(path)
    elif stat.S_ISREG(st.st_mode):
        entry["content"] = open(path, "rb").read().decode("latin-1")
    return entry


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
    _run("ip", "link", "add", "lab1", "type", "veth", "peer", "name", "lab2")
    out = []
    for feature, command in FEATURES.items():
        if subprocess.run(["sh", "-c", command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            out.append(feature)
        _run("ip", "link", "del", "lab0")
    _run("ip", "link", "del", "lab1")
    return out
