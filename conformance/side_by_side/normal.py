# SPDX-License-Identifier: Apache-2.0
"""Takes what is random, or up to the kernel's timing, out of a record.

Random host veth names become VETH1, VETH2 ..., random MACs MAC(link). Link-local addresses, carrier
and timers are the kernel's own and go. What stays is what a plugin decides.
"""
import json
import re

VETH = re.compile(r"veth[0-9a-f]{8}")
MAC = re.compile(r"(?<![0-9a-fA-F:.])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![0-9a-fA-F:])")
POINTER = re.compile(r"\b0x[0-9a-f]{9,12}\b")  # Go prints some fields as addresses in memory
FIXED_MACS = {"00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:80:c2:00:00:00"}

# Of a link: set by the kernel, different in every sandbox, or a matter of timing
# (a port's "state" follows its carrier).
LINK_NOISE = {"ifindex", "link_index", "link_netnsid", "operstate", "ifname", "gso_max_size", "gso_max_segs",
              "tso_max_size", "tso_max_segs", "gro_max_size", "gso_ipv4_max_size", "gro_ipv4_max_size"}
BRIDGE_NOISE = re.compile(r"timer$|^(bridge_id|root_id|designated_.*|no|state|root_port|root_path_cost|topology_.*|config_pending)$")
CARRIER_FLAGS = {"LOWER_UP", "NO-CARRIER", "RUNNING"}
ROUTE_FLAGS = {"linkdown", "dead", "offload", "trap"}
FIRST_CHOSEN_PORT = 32768
# The groups that addresses join by themselves.
MULTICAST = re.compile("33:33:|01:00:5e:")
# Sysctls that hold a clock, a generated secret, or follow the carrier.
SYSCTL_NOISE = re.compile(r"/(stable_secret|mc_forwarding)$")


def record(steps, scenario):
    """The comparable form of a scenario's record."""
    fixed = json.dumps(scenario)
    text = _rename(json.dumps(steps), fixed)
    out = json.loads(_name_macs(text, json.loads(text), fixed))
    _float_bridges(out)
    for step in out:
        for call in step.get("calls", []):
            if "stderr" in call:
                call["stderr"] = re.sub(r"plugin (version unknown|v\d\S*)", "plugin VERSION", call["stderr"])
        for name, part in step.get("state", {}).items():
            if name != "files":
                _namespace(part)
    return out


def _rename(text, fixed):
    """Random host veths by order of appearance; names that the scenario itself uses stay."""
    names = {}

    def new(m):
        return m.group(0) if m.group(0) in fixed else names.setdefault(m.group(0), "VETH%d" % (len(names) + 1))
    return POINTER.sub("POINTER", VETH.sub(new, text))


def _name_macs(text, steps, fixed):
    """Random MACs by the link that had them first, so that "the same one" stays visible."""
    names = {}
    # Bridges last: one without a gateway takes the lowest MAC of its ports, whichever that is.
    for bridges in (False, True):
        for namespace, link in _links(steps):
            if _is_bridge(link) == bridges:
                names.setdefault(link.get("address"), "MAC(%s/%s)" % (namespace, link["ifname"]))

    def new(m):
        mac = m.group(0)
        return mac if mac in FIXED_MACS or mac in fixed else names.get(mac, "MAC(?)")
    return MAC.sub(new, text)


def _links(steps):
    """(namespace, link) of all steps, in order."""
    for step in steps:
        for namespace, part in step.get("state", {}).items():
            for link in part["links"] if namespace != "files" else ():
                yield namespace, link


def _is_bridge(link):
    return link.get("linkinfo", {}).get("info_kind") == "bridge"


def _float_bridges(steps):
    """A bridge's MAC that is a port's: which port's is chance, in the state and in results."""
    bridges = {link["ifname"] for _, link in _links(steps) if _is_bridge(link)}
    for _, link in _links(steps):
        if _is_bridge(link) and "VETH" in link["address"]:
            link["address"] = "MAC(a port)"
    for step in steps:
        for namespace, part in step.get("state", {}).items():
            for entry in part["fdb"] if namespace != "files" else ():
                if entry["ifname"] in bridges and "VETH" in entry["mac"]:
                    entry["mac"] = "MAC(a port)"
    for step in steps:
        for call in step.get("calls", []):
            for document in call["stdout"]:
                for interface in document.get("interfaces") or () if isinstance(document, dict) else ():
                    if isinstance(interface, dict) and interface.get("name") in bridges and "VETH" in interface.get("mac", ""):
                        interface["mac"] = "MAC(a port)"


def _namespace(part):
    part["links"] = {l["ifname"]: _link(l) for l in part["links"]}
    part["routes"] = sorted(filter(None, map(_route, part["routes"])))
    part["rules"] = sorted(json.dumps(r, sort_keys=True) for r in part["rules"])
    part["sysctl"] = {k: v for k, v in part["sysctl"].items() if not SYSCTL_NOISE.search(k)}
    part["mdb"] = _lines(e for bridge in part["mdb"] for e in bridge.get("mdb", []) if e.get("state") == "permanent")
    part["neighbours"], part["proxies"] = _lines(part["neighbours"]), _lines(part["proxies"])
    part["conntrack"] = sorted(filter(None, map(_connection, part["conntrack"])))
    _attribute(part)


def _attribute(part):
    """Puts what is a link's with the link, as it comes and goes with it."""
    links = part["links"]
    for name, entries in part.pop("qdiscs").items():
        for entry in entries:
            for action in entry.get("options", {}).get("actions", ()):
                del action["index"]  # of the host's whole list of actions
        links[name]["qdiscs"] = entries
    for entry in part.pop("vlans"):
        links[entry["ifname"]]["vlans"] = entry.get("vlans")
    # Of forwarding entries and groups, those that somebody set.
    for entry in part.pop("fdb"):
        if not MULTICAST.match(entry["mac"]) and entry.get("state") in ("permanent", "static"):
            links[entry["ifname"]].setdefault("fdb", []).append(json.dumps(entry, sort_keys=True))
    for key in list(part["sysctl"]):
        _, family, kind, name, *rest = key.split("/", 4) + [None, None]
        if kind in ("conf", "neigh") and name in links:
            links[name].setdefault("sysctl", {})["/".join((family, kind, rest[0]))] = part["sysctl"].pop(key)
    for link in links.values():
        link.get("fdb", []).sort()


def _connection(line):
    """A connection's protocol, addresses and ports, without state and timers. None for protocol 2, the kernel's own IGMP, sent
    when a bridge has been up for a while, and for the lab's own traffic, from ports that the kernel chose: how long that
    stays is a matter of timing."""
    ports = map(int, re.findall(r"port=(\d+)", line))
    if line.startswith("unknown  2 ") or any(port >= FIRST_CHOSEN_PORT for port in ports):
        return None
    return " ".join([line.split()[0]] + re.findall(r"\b(?:src|dst|sport|dport|type|code)=\S+", line))


def _lines(entries):
    return sorted(json.dumps(e, sort_keys=True) for e in entries)


def _link(link):
    out = {k: v for k, v in link.items() if k not in LINK_NOISE}
    out["flags"] = sorted(set(link["flags"]) - CARRIER_FLAGS)
    info = json.loads(json.dumps(link.get("linkinfo", {})))
    for key in ("info_data", "info_slave_data"):
        if key in info:
            # A port's id is its number; a VLAN's is what was asked for.
            numbered = key == "info_slave_data"
            info[key] = {k: v for k, v in info[key].items() if not BRIDGE_NOISE.search(k) and not (numbered and k == "id")}
    out["linkinfo"] = info
    out["addr_info"] = {"%s/%s" % (a["local"], a["prefixlen"]): _address(a) for a in link.get("addr_info", [])
                        if not a["local"].startswith("fe80:")}
    return out


def _address(address):
    """An address without its key and without the state of duplicate detection."""
    return {k: v for k, v in address.items() if k not in ("local", "prefixlen", "tentative", "optimistic")}


def _route(route):
    """A route as text; None for those the kernel makes for link-local and multicast."""
    if str(route.get("dst", "")).startswith(("fe80:", "ff00:", "multicast ff")):
        return None
    out = dict(route, flags=sorted(set(route.get("flags", [])) - ROUTE_FLAGS))
    return json.dumps(out, sort_keys=True)
