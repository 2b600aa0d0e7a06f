# SPDX-License-Identifier: Apache-2.0
"""firewall: every field, both backends, chained after a result that the configuration holds."""
from . import FAILS, LIFE, SHORT, VERSIONS, scenario

INTERFACES = [{"name": "br0"}, {"name": "veth00"}, {"name": "eth0", "sandbox": "/run/netns/c1"}]
V4 = {"interface": 2, "address": "10.22.0.2/16", "gateway": "10.22.0.1"}
V6 = {"interface": 2, "address": "fd00:22::2/64"}
DBUS = {"DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/run/lab/bus"}
NO_DBUS = {"DBUS_SYSTEM_BUS_ADDRESS": None}


def previous(*ips, version="1.0.0", interfaces=INTERFACES):
    """A previous result; addresses get a version where results had one."""
    out = {"cniVersion": version, "interfaces": interfaces, "dns": {"domain": "d"}, "routes": [{"dst": "0.0.0.0/0"}]}
    out["ips"] = [dict(i, version="6" if ":" in i["address"] else "4") if version < "1" else i for i in ips]
    return out


def firewall(*ips, version="1.0.0", interfaces=INTERFACES, **fields):
    """A configuration that brings its own previous result."""
    return [dict({"type": "firewall", "prevResult": previous(*ips, version=version, interfaces=interfaces)}, **fields)]


def over_bus(*steps):
    """Steps with the fake bus as the system bus."""
    return [{"do": s, "env": DBUS} for s in steps]


SCENARIOS = [scenario("firewall/version-%s" % v, firewall(V4, V6, version=v), LIFE, version=v) for v in VERSIONS[2:]]
SCENARIOS += [scenario("firewall/version-0.2.0", [{"type": "firewall"}], LIFE, version="0.2.0"),
              scenario("firewall/no-version", [{"type": "firewall"}], LIFE, version=None)]
SCENARIOS += [scenario("firewall/" + name, firewall(*ips, **fields), LIFE, version="1.1.0") for name, ips, fields in (
    ("v4", [V4], {}), ("v6", [V6], {}), ("many", [V4, V6, {"address": "10.23.0.2/24"}, {"address": "fd01::7/128"}], {}),
    ("iptables", [V4, V6], {"backend": "iptables"}),
    ("backend-unknown", [V4], {"backend": "nonsense"}),
    ("admin-chain", [V4, V6], {"backend": "iptables", "iptablesAdminChainName": "NOMAD-ADMIN"}),
    ("admin-chain-empty", [V4], {"iptablesAdminChainName": ""}),
    ("open", [V4], {"ingressPolicy": "open"}),
    ("policy-empty", [V4], {"ingressPolicy": ""}),
    ("same-bridge", [V4, V6], {"ingressPolicy": "same-bridge"}),
    ("isolated", [V4, V6], {"ingressPolicy": "isolated"}),
    ("isolated-v6", [V6], {"ingressPolicy": "isolated"}),
    ("zone-unused", [V4], {"backend": "iptables", "firewalldZone": "public"}),
    ("key-case", [V4], {"BACKEND": "iptables", "IngressPolicy": "same-bridge"}),
    ("no-addresses", [], {}),
)]
SCENARIOS += [
    scenario("firewall/no-addresses-isolated", firewall(ingressPolicy="isolated"), LIFE),
    scenario("firewall/policy-unknown", firewall(V4, ingressPolicy="foo"), FAILS),
    scenario("firewall/policy-without-interfaces", firewall(V4, interfaces=[], ingressPolicy="isolated"), FAILS),
    scenario("firewall/policy-null-interface", firewall(V4, interfaces=[None], ingressPolicy="isolated"), FAILS),
    scenario("firewall/policy-nameless-interface", firewall(V4, interfaces=[{"name": ""}], ingressPolicy="same-bridge"), FAILS),
    scenario("firewall/no-prevresult", [{"type": "firewall"}], ["ADD c1", "CHECK c1", "DEL c1"]),
    scenario("firewall/prevresult-other-version", firewall(V4, version="0.4.0"), ["ADD c1", "CHECK c1", "DEL c1"]),
    scenario("firewall/admin-chains-of-two", firewall(V4, iptablesAdminChainName="A-ADMIN"), [
        "ADD c1", {"do": "ADD", "conf": "b"}, "CHECK c1", {"do": "DEL", "conf": "b"}, "DEL c1"],
        confs={"b": {"cniVersion": "1.0.0", "name": "net2", "plugins": firewall({"address": "10.22.0.3/16"}, iptablesAdminChainName="B-ADMIN")}}),
    scenario("firewall/policies-of-two", firewall(V4, ingressPolicy="isolated"), ["ADD c1", {"do": "ADD", "conf": "b"}, {"do": "DEL", "conf": "b"}, "DEL c1"],
             confs={"b": {"cniVersion": "1.0.0", "name": "net2", "plugins": firewall({"address": "10.23.0.3/16"}, interfaces=[{"name": "br1"}], ingressPolicy="same-bridge")}}),
    scenario("firewall/rules-there-already", firewall(V4), SHORT, host=[
        "iptables -N CNI-FORWARD", "iptables -N CNI-ADMIN", "iptables -A FORWARD -j ACCEPT",
        "iptables -A FORWARD -m comment --comment 'CNI firewall plugin rules' -j CNI-FORWARD",
        "iptables -A CNI-FORWARD -s 10.22.0.2/32 -j ACCEPT", "iptables -A CNI-ADMIN -j DROP"]),
    scenario("firewall/foreign-rules", firewall(V4, V6, ingressPolicy="same-bridge"), SHORT, host=[
        "iptables -P FORWARD DROP", "iptables -A FORWARD -s 1.2.3.4 -j ACCEPT", "ip6tables -A FORWARD -j DROP", "nft add table inet mine"]),
    scenario("firewall/check-forward-jump-gone", firewall(V4), ["ADD c1", {"sh": "iptables -D FORWARD 1"}, "CHECK c1", "DEL c1"]),
    scenario("firewall/check-admin-jump-gone", firewall(V4), ["ADD c1", {"sh": "iptables -D CNI-FORWARD 1"}, "CHECK c1", "DEL c1"]),
    scenario("firewall/check-address-rule-gone", firewall(V4), ["ADD c1", {"sh": "iptables -D CNI-FORWARD 3"}, "CHECK c1", "DEL c1"]),
    scenario("firewall/check-v6-rule-gone", firewall(V6), ["ADD c1", {"sh": "ip6tables -D CNI-FORWARD 2"}, "CHECK c1", "DEL c1"]),
    scenario("firewall/del-without-prevresult", firewall(V4), ["ADD c1", {"do": "DEL", "add": {"prevResult": None}}, "DEL c1"]),
    scenario("firewall/del-rules-gone", firewall(V4, V6), ["ADD c1", {"sh": "iptables -F; ip6tables -F"}, "DEL c1"]),
    scenario("firewall/del-chains-gone", firewall(V4), ["ADD c1", {"sh": "iptables -F; iptables -X"}, "DEL c1"]),
    scenario("firewall/check-before-add", firewall(V4), ["CHECK c1"]),
    scenario("firewall/iptables-missing", firewall(V4), [{"do": v, "env": {"PATH": "/nowhere"}} for v in ("ADD", "CHECK", "DEL")]),
    scenario("firewall/firewalld", firewall(V4, V6, backend="firewalld"), over_bus("ADD", "ADD", "CHECK", "DEL", "DEL"), firewalld=True),
    scenario("firewall/firewalld-zone", firewall(V4, V6, backend="firewalld", firewalldZone="public"), over_bus("ADD", "CHECK", "DEL"), firewalld=True),
    scenario("firewall/firewalld-by-itself", firewall(V4), over_bus("ADD", "CHECK", "DEL"), firewalld=True),
    scenario("firewall/firewalld-running-iptables-asked", firewall(V4, backend="iptables"), over_bus("ADD", "CHECK", "DEL"), firewalld=True),
    scenario("firewall/firewalld-isolated", firewall(V4, backend="firewalld", ingressPolicy="isolated"), over_bus("ADD", "CHECK", "DEL"), firewalld=True),
    scenario("firewall/firewalld-zone-refused", firewall(V4, backend="firewalld", firewalldZone="invalid"), over_bus("ADD", "CHECK", "DEL"), firewalld=True),
    scenario("firewall/firewalld-absent", firewall(V4, backend="firewalld"), [{"do": v, "env": NO_DBUS} for v in ("ADD", "CHECK", "DEL")]),
]
