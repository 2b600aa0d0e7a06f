# SPDX-License-Identifier: Apache-2.0
"""bridge: every field, all versions, the odd states of host and container."""
from . import FAILS, LIFE, SHORT, VERSIONS, scenario

V4 = {"type": "host-local", "subnet": "10.22.0.0/16"}
V6 = {"type": "host-local", "ranges": [[{"subnet": "fd00:22::/64"}]]}
DUAL = {"type": "host-local", "ranges": [[{"subnet": "10.22.0.0/16"}], [{"subnet": "fd00:22::/64"}]]}
TWO = {"type": "host-local", "ranges": [[{"subnet": "10.22.0.0/16"}], [{"subnet": "10.23.0.0/24", "gateway": "10.23.0.254"}]]}
# The kernel takes a namespace apart in the background.
GONE = [{"sh": "ip netns del c1; while ip -br link show type veth | grep -q .; do sleep 0.02; done"}, "DEL c1", "DEL c1"]


def bridge(**fields):
    """A bridge configuration named br0."""
    return [dict({"type": "bridge", "bridge": "br0"}, **fields)]


def fake(answer, **more):
    """A bridge with gateway over an IPAM plugin that gives a fixed answer."""
    fields = {k: v for k, v in more.items() if k != "ipam"}
    return bridge(isGateway=True, ipam=dict({"type": "fake-ipam", "answer": answer}, **more.get("ipam", {})), **fields)


def answer(ips, routes=(), **more):
    """An IPAM answer."""
    return dict({"cniVersion": "1.0.0", "ips": [dict({"address": a}, **({"gateway": g} if g else {})) for a, g in ips],
                 "routes": list(routes)}, **more)


ALL = dict(isGateway=True, ipMasq=True, ipam=dict(V4, routes=[{"dst": "0.0.0.0/0"}]))
# Two gateways of one family need forceAddress, so those ADDs fail.
GATEWAYS = [scenario("bridge/%s-%s" % (what, family), bridge(ipam=ipam, **fields), FAILS if fields and ipam is TWO else LIFE, version="1.1.0")
            for family, ipam in (("v4", V4), ("v6", V6), ("dual", DUAL), ("two-v4", TWO))
            for what, fields in (("plain", {}), ("gateway", {"isGateway": True}), ("default-gateway", {"isDefaultGateway": True}),
                                 ("masq", {"isGateway": True, "ipMasq": True}))]
BY_VERSION = [scenario("bridge/version-%s" % v, bridge(**dict(ALL, ipam=dict(DUAL, routes=[{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]))),
                       LIFE, version=v) for v in VERSIONS + (None,)]
# The two oldest versions cannot express a result without addresses.
L2 = [scenario("bridge/l2-version-%s" % v, bridge(), FAILS if v < "0.3" else LIFE, version=v) for v in VERSIONS]

FIELDS = [
    scenario("bridge/default-name", [{"type": "bridge", "isGateway": True, "ipam": V4}]),
    scenario("bridge/null-name", [{"type": "bridge", "bridge": None, "isGateway": True, "ipam": V4}]),
    scenario("bridge/keys-case-insensitive", [{"type": "bridge", "BRIDGE": "br0", "IsGateWay": True, "ipmasq": True,
                                               "ipam": {"type": "host-local", "SUBNET": "10.22.0.0/16"}}]),
    scenario("bridge/unknown-keys", bridge(isGateway=True, ipam=dict(V4, foo=1), foo={"a": [1]}, mac="zz")),
    scenario("bridge/nulls", bridge(isGateway=True, ipam=V4, mtu=None, ipMasqBackend=None, vlan=None, vlanTrunk=None, dns=None)),
    scenario("bridge/mtu", bridge(isGateway=True, mtu=1300, ipam=V4)),
    scenario("bridge/mtu-too-small", bridge(isGateway=True, mtu=20, ipam=V4), FAILS),
    scenario("bridge/hairpin", bridge(isGateway=True, hairpinMode=True, ipam=V4)),
    scenario("bridge/promisc", bridge(isGateway=True, promiscMode=True, ipam=V4)),
    scenario("bridge/promisc-not-configured-on-check", bridge(isGateway=True, promiscMode=True, ipam=V4),
             ["ADD c1", {"do": "CHECK", "add": {"promiscMode": False}}, "DEL c1"]),
    scenario("bridge/port-isolation", bridge(isGateway=True, portIsolation=True, ipam=V4), ["ADD c1", "ADD c2", "CHECK c2", "DEL c1", "DEL c2"]),
    scenario("bridge/mac-spoof-check", bridge(isGateway=True, macspoofchk=True, ipam=V4), ["ADD c1", "ADD c2", "CHECK c1", "DEL c1", "DEL c1", "DEL c2"]),
    scenario("bridge/mac-spoof-check-l2", bridge(macspoofchk=True), ["ADD c1", "DEL c1"]),
    scenario("bridge/mac-spoof-check-two-interfaces", bridge(isGateway=True, macspoofchk=True, ipam=V4),
             ["ADD c1 eth0", "ADD c1 eth1", "DEL c1 eth0", "DEL c1 eth1"]),
    scenario("bridge/enable-dad", bridge(isGateway=True, enabledad=True, ipam=DUAL)),
    scenario("bridge/enable-dad-l2", bridge(enabledad=True), ["ADD c1", "DEL c1"]),
    scenario("bridge/container-interface-down", bridge(disableContainerInterface=True), ["ADD c1", "DEL c1"]),
    scenario("bridge/container-interface-down-with-ipam", bridge(disableContainerInterface=True, ipam=V4), FAILS),
    scenario("bridge/hairpin-and-promisc", bridge(hairpinMode=True, promiscMode=True, ipam=V4), FAILS),
    scenario("bridge/masq-without-ipam", bridge(ipMasq=True), ["ADD c1", "DEL c1"]),
    scenario("bridge/masq-backend-iptables", bridge(isGateway=True, ipMasq=True, ipMasqBackend="iptables", ipam=DUAL), LIFE),
    scenario("bridge/masq-backend-nftables", bridge(isGateway=True, ipMasq=True, ipMasqBackend="nftables", ipam=DUAL), LIFE),
    scenario("bridge/masq-backend-nftables-beside-iptables", bridge(isGateway=True, ipMasq=True, ipMasqBackend="nftables", ipam=DUAL),
             ["ADD c1", "ADD c2", "CHECK c1", "DEL c1", "DEL c1", "DEL c2"], host=["iptables -t nat -N OTHER", "ip6tables -t nat -N OTHER"]),
    scenario("bridge/masq-backend-unknown", bridge(isGateway=True, ipMasq=True, ipMasqBackend="foo", ipam=V4), FAILS),
    scenario("bridge/dns-of-configuration", bridge(isGateway=True, ipam=V4, dns={"nameservers": ["10.0.0.53"], "domain": "d", "search": ["a", "b"], "options": ["ndots:1"]})),
    scenario("bridge/dns-of-ipam", bridge(isGateway=True, ipam=dict(V4, resolvConf="/run/resolv.conf")),
             host=["printf 'nameserver 10.0.0.53\\nsearch a b\\noptions ndots:2\\n' > /run/resolv.conf"]),
    scenario("bridge/dns-of-both", bridge(isGateway=True, dns={"domain": "d"}, ipam=dict(V4, resolvConf="/run/resolv.conf")),
             host=["printf 'nameserver 10.0.0.53\\n' > /run/resolv.conf"]),
]

MACS = [
    scenario("bridge/mac-args", bridge(isGateway=True, ipam=V4),
             [{"do": v, "env": {"CNI_ARGS": "IgnoreUnknown=1;MAC=02:00:00:00:00:01"}} for v in ("ADD", "CHECK", "DEL")]),
    scenario("bridge/mac-args-cni", bridge(isGateway=True, ipam=V4, args={"cni": {"mac": "02:00:00:00:00:02"}}),
             [{"do": v, "env": {"CNI_ARGS": "IgnoreUnknown=1;MAC=02:00:00:00:00:01"}} for v in ("ADD", "CHECK", "DEL")]),
    scenario("bridge/mac-runtime-config", bridge(isGateway=True, ipam=V4, args={"cni": {"mac": "02:00:00:00:00:02"}}, capabilities={"mac": True}),
             [{"do": v, "env": {"CNI_ARGS": "IgnoreUnknown=1;MAC=02:00:00:00:00:01"}} for v in ("ADD", "CHECK", "DEL")],
             caps={"mac": "02:00:00:00:00:03"}),
    scenario("bridge/mac-upper-case-dashes", bridge(isGateway=True, ipam=V4, args={"cni": {"mac": "02-AB-00-00-00-02"}})),
    scenario("bridge/mac-l2-spoof", bridge(macspoofchk=True, args={"cni": {"mac": "02:00:00:00:00:02"}}), ["ADD c1", "DEL c1"]),
    scenario("bridge/mac-bad", bridge(isGateway=True, ipam=V4, args={"cni": {"mac": "zz"}}), FAILS),
]

HOSTS = [
    scenario("bridge/exists", bridge(isGateway=True, ipam=V4, mtu=1400), host=["ip link add br0 type bridge"]),
    scenario("bridge/exists-with-the-address", bridge(isGateway=True, ipam=V4), host=["ip link add br0 address 02:00:00:00:00:99 type bridge", "ip addr add 10.22.0.1/16 dev br0"]),
    scenario("bridge/exists-with-other-address", bridge(isGateway=True, ipam=V4), FAILS, host=["ip link add br0 type bridge", "ip addr add 10.99.0.1/16 dev br0"]),
    scenario("bridge/force-address", bridge(isGateway=True, forceAddress=True, ipam=V4), LIFE, host=["ip link add br0 type bridge", "ip addr add 10.99.0.1/16 dev br0", "ip addr add 10.98.0.1/16 dev br0"]),
    scenario("bridge/force-address-two", bridge(isGateway=True, forceAddress=True, ipam=TWO), SHORT),
    scenario("bridge/force-address-v6", bridge(isGateway=True, forceAddress=True, ipam=V6), host=["ip link add br0 type bridge", "ip -6 addr add fd00:22::99/48 dev br0 nodad", "ip -6 addr add fd00:99::1/64 dev br0 nodad"]),
    scenario("bridge/other-v6-address-inside", bridge(isGateway=True, ipam=V6), FAILS, host=["ip link add br0 type bridge", "ip -6 addr add fd00:22::99/64 dev br0 nodad"]),
    scenario("bridge/other-v6-address-outside", bridge(isGateway=True, ipam=V6), host=["ip link add br0 type bridge", "ip -6 addr add fd00:99::1/64 dev br0 nodad"]),
    scenario("bridge/name-is-no-bridge", bridge(isGateway=True, ipam=V4), FAILS, host=["ip link add br0 type veth peer name br1"]),
    scenario("bridge/name-lo", [{"type": "bridge", "bridge": "lo", "ipam": V4}], FAILS),
    scenario("bridge/name-empty", [{"type": "bridge", "bridge": "", "ipam": V4}], FAILS),
    scenario("bridge/name-too-long", [{"type": "bridge", "bridge": "a" * 16, "ipam": V4}], FAILS),
    scenario("bridge/forwarding-on-already", bridge(isGateway=True, ipam=DUAL), host=["sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"]),
    scenario("bridge/interface-exists-in-container", bridge(isGateway=True, ipam=V4), [{"sh": "ip link add eth0 type veth peer name p0", "in": "c1"}, "ADD c1", "DEL c1"]),
    scenario("bridge/no-ipv6-in-container", bridge(isGateway=True, ipam=DUAL), [{"sh": "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1", "in": "c1"}] + SHORT),
    scenario("bridge/two-networks", bridge(**ALL), ["ADD c1", {"do": "ADD", "conf": "b", "if": "eth1"}, {"do": "CHECK", "conf": "b", "if": "eth1"}, "CHECK c1", {"do": "DEL", "conf": "b", "if": "eth1"}, "DEL c1"],
             confs={"b": {"cniVersion": "1.0.0", "name": "net2", "plugins": [{"type": "bridge", "bridge": "br1", "isGateway": True, "ipMasq": True, "ipam": {"type": "host-local", "subnet": "10.44.0.0/24"}}]}}),
    scenario("bridge/two-containers", bridge(**ALL), ["ADD c1", "ADD c2", "CHECK c1", "CHECK c2", "DEL c1", "CHECK c2", "DEL c2"]),
    scenario("bridge/two-interfaces-one-network", bridge(**dict(ALL, ipam=V4)), ["ADD c1 eth0", "ADD c1 eth1", "DEL c1 eth0", "DEL c1 eth1", "DEL c1 eth0"]),
]

LEAVING = [
    scenario("bridge/del-empty-netns", bridge(**ALL), ["ADD c1", {"do": "DEL", "netns": ""}, "DEL c1"]),
    scenario("bridge/del-netns-gone", bridge(**ALL), ["ADD c1"] + GONE),
    scenario("bridge/del-netns-gone-nftables", bridge(**dict(ALL, ipMasqBackend="nftables")), ["ADD c1"] + GONE),
    scenario("bridge/del-netns-gone-spoof", bridge(**dict(ALL, macspoofchk=True)), ["ADD c1"] + GONE),
    scenario("bridge/del-netns-is-a-file", bridge(**ALL), ["ADD c1", {"sh": "touch /run/plain"}, {"do": "DEL", "netns": "/run/plain"}, "DEL c1"]),
    scenario("bridge/del-interface-gone", bridge(**ALL), ["ADD c1", {"sh": "ip link del eth0", "in": "c1"}, "DEL c1", "DEL c1"]),
    scenario("bridge/del-without-add", bridge(**ALL), ["DEL c1"]),
    scenario("bridge/del-without-prevresult", bridge(**ALL), ["ADD c1", {"do": "DEL", "add": {"prevResult": None}}]),
    scenario("bridge/add-netns-missing", bridge(**ALL), [{"do": "ADD", "netns": "/run/nonexist"}]),
    scenario("bridge/add-netns-is-a-file", bridge(**ALL), [{"sh": "touch /run/plain"}, {"do": "ADD", "netns": "/run/plain"}]),
    scenario("bridge/check-address-gone", bridge(**ALL), ["ADD c1", {"sh": "ip addr flush dev eth0", "in": "c1"}, "CHECK c1", "DEL c1"]),
    scenario("bridge/check-default-route-gone", bridge(**ALL), ["ADD c1", {"sh": "ip route del default", "in": "c1"}, "CHECK c1", "DEL c1"]),
    scenario("bridge/check-interface-gone", bridge(**ALL), ["ADD c1", {"sh": "ip link del eth0", "in": "c1"}, "CHECK c1", "DEL c1"]),
    scenario("bridge/check-bridge-gone", bridge(**ALL), ["ADD c1", {"sh": "ip link del br0"}, "CHECK c1", "DEL c1"]),
    scenario("bridge/check-host-veth-detached", bridge(**ALL), ["ADD c1", {"sh": "ip link set $(ip -br link show master br0 | cut -d@ -f1) nomaster"}, "CHECK c1", "DEL c1"]),
    scenario("bridge/check-mac-changed", bridge(**ALL), ["ADD c1", {"sh": "ip link set eth0 address 02:00:00:00:00:77", "in": "c1"}, "CHECK c1", "DEL c1"]),
    scenario("bridge/check-host-mac-changed", bridge(**ALL), ["ADD c1", {"sh": "ip link set $(ip -br link show master br0 | cut -d@ -f1) address 02:00:00:00:00:77"}, "CHECK c1", "DEL c1"]),
    scenario("bridge/check-interface-down", bridge(**ALL), ["ADD c1", {"sh": "ip link set eth0 down", "in": "c1"}, "CHECK c1", "DEL c1"]),
    scenario("bridge/check-bridge-mac-changed", bridge(**ALL), ["ADD c1", {"sh": "ip link set br0 address 02:00:00:00:00:77"}, "CHECK c1", "DEL c1"]),
    scenario("bridge/check-reservation-gone", bridge(**ALL), ["ADD c1", {"sh": "rm /var/lib/cni/networks/net1/10.*"}, "CHECK c1", "DEL c1"]),
    scenario("bridge/check-without-prevresult", bridge(**ALL), ["ADD c1", {"do": "CHECK", "add": {"prevResult": None}}, "DEL c1"]),
    scenario("bridge/check-other-container", bridge(**ALL), ["ADD c1", "CHECK c2", "DEL c1"]),
    scenario("bridge/check-other-netns", bridge(**ALL), ["ADD c1", "ADD c2", {"do": "CHECK", "netns": "/run/netns/c2"}, "DEL c1", "DEL c2"]),
]

IPAM = [
    scenario("bridge/ipam-no-ips", fake({"cniVersion": "1.0.0"}), FAILS),
    scenario("bridge/ipam-null", fake("null"), FAILS),
    scenario("bridge/ipam-garbage", fake("no json"), FAILS),
    scenario("bridge/ipam-error", fake({"code": 123, "msg": "no more", "details": "at all"}), FAILS),
    scenario("bridge/ipam-fails-silently", fake({"raw": "", "exit": 1}), FAILS),
    scenario("bridge/ipam-fails-on-stderr", fake({"raw": "", "stderr": "oh dear", "exit": 2}), FAILS),
    scenario("bridge/ipam-fails-with-garbage", fake({"raw": "{oops", "exit": 1}), FAILS),
    scenario("bridge/ipam-del-fails", fake(answer([("10.1.0.2/24", None)]), ipam={"answers": {"DEL": {"code": 101, "msg": "del failed"}}}), ["ADD c1", "DEL c1"]),
    scenario("bridge/ipam-check-fails", fake(answer([("10.1.0.2/24", None)]), ipam={"answers": {"CHECK": {"code": 101, "msg": "check failed"}}}), SHORT),
    scenario("bridge/ipam-status-fails", fake(answer([("10.1.0.2/24", None)]), ipam={"answers": {"STATUS": {"code": 50, "msg": "not now"}}}), ["STATUS", "ADD c1", "STATUS", "DEL c1"], version="1.1.0"),
    scenario("bridge/ipam-not-found", bridge(isGateway=True, ipam={"type": "nope"}), ["STATUS"] + FAILS, version="1.1.0"),
    scenario("bridge/ipam-name-with-slash", bridge(isGateway=True, ipam={"type": "a/b"}), FAILS),
    scenario("bridge/ipam-empty-type", bridge(ipam={"type": ""}), ["ADD c1", "DEL c1"]),
    scenario("bridge/ipam-gateway-elsewhere", fake(answer([("10.1.0.2/24", "10.1.0.200")], [{"dst": "0.0.0.0/0"}]))),
    scenario("bridge/ipam-no-gateway", fake(answer([("10.1.0.2/24", None)], [{"dst": "10.9.0.0/16"}]))),
    scenario("bridge/ipam-routes", fake(answer([("10.1.0.2/24", "10.1.0.1")], [
        {"dst": "0.0.0.0/0", "gw": "10.1.0.1"}, {"dst": "10.8.0.0/16", "gw": "10.1.0.9"}, {"dst": "10.7.0.0/16", "priority": 77},
        {"dst": "10.6.0.0/16", "table": 100}, {"dst": "10.5.0.0/16", "mtu": 1300, "advmss": 1200}])), version="1.1.0"),
    scenario("bridge/ipam-scope-link", fake(answer([("10.1.0.2/24", None)], [{"dst": "10.1.0.1/32", "scope": 253}])), FAILS),
    scenario("bridge/ipam-scope-universe", fake(answer([("10.1.0.2/24", "10.1.0.1")], [{"dst": "10.9.0.0/16", "scope": 0}]))),
    scenario("bridge/ipam-route-twice", fake(answer([("10.1.0.2/24", None)], [{"dst": "10.9.0.0/16"}, {"dst": "10.9.0.0/16"}])), FAILS),
    scenario("bridge/ipam-routes-v6", fake(answer([("fd01::2/64", "fd01::1")], [{"dst": "::/0"}, {"dst": "fd09::/64", "gw": "fd01::9", "priority": 5}, {"dst": "fd08::/64", "table": 100}]))),
    scenario("bridge/ipam-interface-index", fake({"cniVersion": "1.0.0", "interfaces": [{"name": "x"}], "ips": [{"address": "10.1.0.2/24", "interface": 0}]})),
    scenario("bridge/ipam-host-address", fake(answer([("10.1.0.2/32", "10.1.0.1")])), ["ADD c1", "CHECK c1", "DEL c1"]),
    scenario("bridge/ipam-p2p-prefix", fake(answer([("10.1.0.2/31", "10.1.0.3")])), ["ADD c1", "DEL c1"]),
    scenario("bridge/ipam-old-answer", fake({"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.2/24", "gateway": "10.1.0.1", "routes": [{"dst": "0.0.0.0/0"}]}, "dns": {"domain": "x"}})),
    scenario("bridge/ipam-answer-without-version", fake({"ips": [{"address": "10.1.0.2/24"}]})),
    scenario("bridge/ipam-same-address-twice", fake(answer([("10.1.0.2/24", None), ("10.1.0.2/24", None)])), FAILS),
    scenario("bridge/default-route-with-gateway", bridge(isDefaultGateway=True, ipam=dict(V4, routes=[{"dst": "0.0.0.0/0", "gw": "10.22.0.9"}]))),
    scenario("bridge/default-route-without-gateway", bridge(isDefaultGateway=True, ipam=dict(V4, routes=[{"dst": "0.0.0.0/0"}])), FAILS),
    scenario("bridge/default-gateway-many", fake(answer([("10.1.0.2/24", "10.1.0.1"), ("10.2.0.2/24", "10.2.0.1"), ("fd01::2/64", "fd01::1")]), isDefaultGateway=True, forceAddress=False), FAILS),
]

VLAN = [scenario("bridge/" + name, bridge(isGateway="ipam" in f, **f), steps, needs=["vlan-filtering"]) for name, steps, f in (
    ("vlan", SHORT, {"vlan": 100, "ipam": V4}),
    ("vlan-two-containers", ["ADD c1", "ADD c2", "DEL c1", "DEL c2"], {"vlan": 100, "ipam": DUAL, "ipMasq": True}),
    ("vlan-keep-default", SHORT, {"vlan": 100, "preserveDefaultVlan": True, "ipam": V4}),
    ("vlan-l2", ["ADD c1", "DEL c1"], {"vlan": 100}),
    ("vlan-default-gateway", SHORT, {"vlan": 7, "isDefaultGateway": True, "ipam": DUAL}),
    ("vlan-force-address", SHORT, {"vlan": 7, "forceAddress": True, "ipam": V4}),
    ("vlan-mtu", SHORT, {"vlan": 7, "mtu": 1300, "ipam": V4}),
    ("vlan-trunk", ["ADD c1", "DEL c1"], {"vlanTrunk": [{"minID": 10, "maxID": 12}, {"id": 20}, {"id": 11, "minID": 30, "maxID": 31}]}),
    ("vlan-trunk-and-vlan", ["ADD c1", "DEL c1"], {"vlan": 5, "vlanTrunk": [{"id": 20}]}),
    ("vlan-trunk-keep-default", ["ADD c1", "DEL c1"], {"vlanTrunk": [{"id": 20}], "preserveDefaultVlan": True}),
    ("vlan-trunk-empty", ["ADD c1", "DEL c1"], {"vlanTrunk": []}),
    ("vlan-trunk-with-gateway", SHORT, {"vlanTrunk": [{"id": 20}], "ipam": V4}),
)]
VLAN.append(scenario("bridge/vlan-second-network-on-bridge", bridge(isGateway=True, vlan=100, ipam=V4), [
    "ADD c1", {"do": "ADD", "c": "c2", "conf": "b"}, {"do": "DEL", "c": "c2", "conf": "b"}, "DEL c1"], vlan=True,
    confs={"b": {"cniVersion": "1.0.0", "name": "net2", "plugins": bridge(isGateway=True, vlan=200, ipam={"type": "host-local", "subnet": "10.44.0.0/24"})}}))

SCENARIOS = GATEWAYS + BY_VERSION + L2 + FIELDS + MACS + HOSTS + LEAVING + IPAM + VLAN
