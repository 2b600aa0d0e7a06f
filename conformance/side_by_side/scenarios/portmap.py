# SPDX-License-Identifier: Apache-2.0
"""portmap: every field, both backends, chained after a result that the configuration holds."""
from . import FAILS, LIFE, SHORT, VERSIONS, scenario

V4 = {"interface": 2, "address": "10.22.0.2/16", "gateway": "10.22.0.1"}
V6 = {"interface": 2, "address": "fd00:22::2/64"}
# A link that the container's addresses are routed through, as a bridge would be.
ROUTED = ["ip link add br0 type bridge && ip addr add 10.22.0.1/16 dev br0 && ip -6 addr add fd00:22::1/64 dev br0 nodad && ip link set br0 up",
          "for n in $(seq 100); do ip -6 route show table local | grep -q '^local fd00:22::1 ' && exit; sleep 0.02; done; exit 1"]
INTERFACES = [{"name": "br0"}, {"name": "veth00"}, {"name": "eth0", "sandbox": "/run/netns/c1"}]


def port(host, container, protocol="tcp", ip=None):
    """A port mapping."""
    out = {"hostPort": host, "containerPort": container, "protocol": protocol}
    return out if ip is None else dict(out, hostIP=ip)


ONE = [port(8080, 80)]
MANY = [port(8000 + n, 80 + n, p) for n in range(17) for p in ("tcp", "udp")] + [port(9000, 90, "sctp")]
HOST_IPS = [port(8080, 80, "tcp", "10.99.0.1"), port(8081, 81, "tcp", "2001:db8::1"), port(8082, 82, "udp", "0.0.0.0"),
            port(8083, 83, "udp", "::"), port(8084, 84, "tcp", ""), port(8085, 85, "tcp", "127.0.0.1")]


def portmap(*ips, interfaces=INTERFACES, version="1.0.0", **fields):
    """A configuration that brings its own previous result."""
    previous = {"cniVersion": version, "interfaces": interfaces}
    previous["ips"] = [dict(i, version="6" if ":" in i["address"] else "4") if version < "1" else i for i in ips]
    if version in ("0.1.0", "0.2.0"):
        previous = {"cniVersion": version, "ip4": {"ip": "10.22.0.2/16"}, "ip6": {"ip": "fd00:22::2/64"}}
    return [dict({"type": "portmap", "capabilities": {"portMappings": True}, "prevResult": previous}, **fields)]


def mapped(name, plugins, ports=ONE, steps=SHORT, **more):
    """A scenario with port mappings on a host that has the route."""
    more.setdefault("host", ROUTED)
    return scenario("portmap/" + name, plugins, steps, caps={"portMappings": ports}, **more)


SCENARIOS = [mapped("version-%s" % v, portmap(V4, V6, version=v), steps=LIFE, version=v) for v in VERSIONS]
for BACKEND in ("iptables", "nftables"):
    SCENARIOS += [mapped("%s-%s" % (BACKEND, name), portmap(*ips, backend=BACKEND, **fields), ports, LIFE, version="1.1.0")
                  for name, ips, ports, fields in (
        ("v4", [V4], ONE, {}), ("v6", [V6], ONE, {}), ("dual", [V4, V6], ONE, {}), ("many", [V4, V6], MANY, {}),
        ("host-ips", [V4, V6], HOST_IPS, {}), ("host-ips-v4", [V4], HOST_IPS, {}), ("no-snat", [V4, V6], ONE, {"snat": False}),
        ("snat-asked", [V4], ONE, {"snat": True}), ("masq-all", [V4, V6], HOST_IPS, {"masqAll": True}),
        ("masq-all-no-snat", [V4], ONE, {"masqAll": True, "snat": False}), ("mark-bit", [V4, V6], ONE, {"markMasqBit": 5}),
        ("mark-bit-0", [V4], ONE, {"markMasqBit": 0}), ("mark-bit-31", [V4], ONE, {"markMasqBit": 31}),
        ("no-ports", [V4], [], {}), ("no-addresses", [], ONE, {}), ("same-port-twice", [V4], [port(8080, 80), port(8080, 81), port(8080, 80, "udp")], {}),
        ("protocol-sctp", [V4], [port(8080, 80, "sctp")], {}), ("protocol-upper-case", [V4], [port(8080, 80, "TCP"), port(53, 53, "UDP")], {}),
        ("conditions", [V4, V6], ONE, {"conditionsV4": ["-d", "192.0.2.0/24"], "conditionsV6": ["!", "-d", "2001:db8::/32"]} if BACKEND == "iptables"
         else {"conditionsV4": ["ip", "daddr", "192.0.2.0/24"], "conditionsV6": ["ip6", "daddr", "2001:db8::/32"]}),
        ("conditions-comment", [V4], ONE, {"conditionsV4": ["-m", "comment", "--comment", "two words"]} if BACKEND == "iptables"
         else {"conditionsV4": ["ip", "saddr", "!=", "192.0.2.0/24"]}),
        ("conditions-empty", [V4], ONE, {"conditionsV4": [], "conditionsV6": []}),
        ("key-case", [V4], ONE, {"SNAT": False, "MasqAll": True}),
    )]

PAIR = {"b": {"cniVersion": "1.0.0", "name": "net2", "plugins": portmap({"interface": 2, "address": "10.22.0.3/16"}, interfaces=[
    {"name": "br0"}, {"name": "veth01"}, {"name": "eth1", "sandbox": "/run/netns/c1"}])}}
B = {"conf": "b", "if": "eth1"}
SCENARIOS += [
    mapped("backend-unset", portmap(V4, V6), steps=LIFE),
    mapped("backend-null", portmap(V4, backend=None)),
    mapped("no-route-to-container", portmap(V4), host=[]),
    mapped("set-mark-chain", portmap(V4, V6, externalSetMarkChain="MY-MARK"), host=ROUTED + ["iptables -t nat -N MY-MARK", "ip6tables -t nat -N MY-MARK"], steps=LIFE),
    mapped("set-mark-chain-masq-all", portmap(V4, externalSetMarkChain="MY-MARK", masqAll=True), host=ROUTED + ["iptables -t nat -N MY-MARK"]),
    mapped("set-mark-chain-missing", portmap(V4, externalSetMarkChain="MY-MARK"), steps=FAILS),
    mapped("set-mark-chain-and-bit", portmap(V4, externalSetMarkChain="MY-MARK", markMasqBit=3), steps=FAILS),
    mapped("options-of-nftables", portmap(V4, backend="iptables", conditionsV4=["ip", "daddr", "1.2.3.4"], conditionsV6=["a", "b"]), steps=FAILS),
    mapped("options-of-iptables", portmap(V4, backend="nftables", externalSetMarkChain="X", conditionsV4=["-d", "1.2.3.4"]), steps=FAILS),
    mapped("bad-condition", portmap(V4, conditionsV4=["--nonsense"]), steps=FAILS),
    mapped("other-interface", portmap(dict(V4, interface=0), V6)),
    mapped("no-interface-index", portmap({"address": "10.22.0.2/16"})),
    mapped("index-out-of-range", portmap(dict(V4, interface=7))),
    mapped("first-address-of-a-family", portmap(V4, {"interface": 2, "address": "10.22.0.9/16"})),
    mapped("sandbox-empty", portmap(V4, interfaces=[{"name": "br0"}, {"name": "v"}, {"name": "eth0"}])),
    mapped("del-without-ports", portmap(V4), steps=["ADD c1", {"do": "DEL", "caps": {}}, "DEL c1"]),
    mapped("del-without-prevresult", portmap(V4), steps=["ADD c1", {"do": "DEL", "add": {"prevResult": None}}]),
    mapped("check-without-prevresult", portmap(V4), steps=["ADD c1", {"do": "CHECK", "add": {"prevResult": None}}, "DEL c1"]),
    mapped("no-prevresult", [{"type": "portmap", "capabilities": {"portMappings": True}}], steps=FAILS),
    mapped("two-attachments", portmap(V4), [port(8080, 80)], ["ADD c1", dict(B, do="ADD", caps={"portMappings": [port(9090, 80)]}),
           "CHECK c1", dict(B, do="CHECK", caps={"portMappings": [port(9090, 80)]}), dict(B, do="DEL", caps={"portMappings": [port(9090, 80)]}), "CHECK c1", "DEL c1"], confs=PAIR),
    mapped("two-containers-same-port", portmap(V4), steps=["ADD c1", "ADD c2", "DEL c1", "CHECK c2", "DEL c2"]),
    mapped("ports-changed", portmap(V4), steps=["ADD c1", {"do": "ADD", "caps": {"portMappings": [port(8081, 80)]}}, "DEL c1"]),
    mapped("mark-bit-changed", portmap(V4), steps=["ADD c1", {"do": "ADD", "add": {"markMasqBit": 5}}, "DEL c1"]),
    mapped("rules-gone-before-del", portmap(V4), steps=["ADD c1", {"sh": "iptables -t nat -F; iptables -t nat -X"}, "DEL c1"]),
    mapped("check-entry-gone", portmap(V4), steps=["ADD c1", {"sh": "iptables -t nat -F CNI-HOSTPORT-DNAT"}, "CHECK c1", "DEL c1"]),
    mapped("check-dnat-gone", portmap(V4), steps=["ADD c1", {"sh": "iptables -t nat -D $(iptables -t nat -S | grep -m1 -- '-j DNAT' | cut -c4-)"}, "CHECK c1", "DEL c1"]),
    mapped("check-chain-gone", portmap(V4), steps=["ADD c1", {"sh": "iptables -t nat -F; iptables -t nat -X"}, "CHECK c1", "DEL c1"]),
    mapped("check-nft-rules-gone", portmap(V4, backend="nftables"), steps=["ADD c1", {"sh": "nft flush chain ip cni_hostport hostports"}, "CHECK c1", "DEL c1"]),
    mapped("check-nft-masquerade-gone", portmap(V4, backend="nftables"), steps=["ADD c1", {"sh": "nft flush chain ip cni_hostport masquerading"}, "CHECK c1", "DEL c1"]),
    mapped("nft-second-add", portmap(V4, backend="nftables"), steps=["ADD c1", "ADD c1", "CHECK c1", "DEL c1"]),
    mapped("nft-conditions-of-last", portmap(V4, backend="nftables", conditionsV4=["ip", "daddr", "192.0.2.0/24"]), steps=["ADD c1", {"do": "ADD", "c": "c2", "add": {"conditionsV4": None}}, "DEL c1", "DEL c2"]),
    mapped("nft-old-host-ip-rules", portmap(V4, backend="nftables"), steps=["ADD c1", {"sh": "nft add rule ip cni_hostport hostip_hostports tcp dport 1 accept comment c1"}, "DEL c1"]),
    mapped("old-snat-chain", portmap(V4), steps=["ADD c1", {"sh": "iptables -t nat -N CNI-HOSTPORT-SNAT; c=CNI-SN-$(printf net1c1 | sha512sum | cut -c1-21); iptables -t nat -N $c; iptables -t nat -A $c -j RETURN; iptables -t nat -A CNI-HOSTPORT-SNAT -j $c"}, "DEL c1"]),
    mapped("other-rules-around", portmap(V4), host=ROUTED + ["iptables -t nat -A POSTROUTING -s 1.1.1.1 -j ACCEPT", "iptables -t nat -A PREROUTING -p tcp --dport 8080 -j ACCEPT"]),
    mapped("long-names", portmap(V4), steps=[{"do": v, "id": "a" * 200} for v in ("ADD", "CHECK", "DEL")], net="n" * 100),
    mapped("nft-long-id", portmap(V4, backend="nftables"), steps=[{"do": v, "id": "a" * 130} for v in ("ADD", "DEL")]),
    mapped("upstream-vector", portmap(V4), steps=[{"do": v, "id": "icee6giejonei6sohng6ahngee7laquohquee9shiGo7fohferakah3Feiyoolu2pei7ciPhoh7shaoX6vai3vuf0ahfaeng8yohb9ceu0daez5hashee8ooYai5wa3y"} for v in ("ADD", "DEL")], net="test"),
    mapped("stale-udp-flow", portmap(V4), [port(5353, 53, "udp"), port(5354, 54, "tcp")], ["ADD c1", "DEL c1"], host=ROUTED + [
        "conntrack -I -p udp -s 192.0.2.7 -d 198.51.100.1 --sport 1000 --dport 5353 -t 600",
        "conntrack -I -p udp -s 192.0.2.7 -d 198.51.100.1 --sport 1000 --dport 5399 -t 600",
        "conntrack -I -p udp -s 192.0.2.7 -d 198.51.100.1 --sport 1000 --dport 53 -t 600",
        "conntrack -I -p tcp --state ESTABLISHED -s 192.0.2.7 -d 198.51.100.1 --sport 1000 --dport 5353 -t 600",
        "conntrack -I -p udp -s 2001:db8::7 -d 2001:db8::1 --sport 1000 --dport 5353 -t 600"]),
]
