# SPDX-License-Identifier: Apache-2.0
"""The interface plugins: what all of them share, once for each, and then the fields of their own."""
from . import FAILS, LIFE, SHORT, VERSIONS, scenario, wrong_types
from .bridge import answer

V4 = {"type": "host-local", "subnet": "10.60.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}
V6 = {"type": "host-local", "subnet": "fd60::/64", "routes": [{"dst": "::/0"}]}
DUAL = {"type": "host-local", "ranges": [[{"subnet": "10.60.0.0/24"}], [{"subnet": "fd60::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "192.0.2.0/24", "gw": "10.60.0.7"}]}
STATIC = {"type": "static", "addresses": [{"address": "10.60.0.9/24", "gateway": "10.60.0.1"}, {"address": "fd60::9/64", "gateway": "fd60::1"}],
          "routes": [{"dst": "0.0.0.0/0"}, {"dst": "198.18.0.0/15", "gw": "10.60.0.3", "priority": 7}, {"dst": "203.0.113.0/24", "table": 77}],
          "dns": {"nameservers": ["10.60.0.53"], "search": ["a", "b"]}}
DNS = {"nameservers": ["192.0.2.53"], "domain": "d", "search": ["x"], "options": ["ndots:1"]}
# A host interface and its far end, without addresses that the kernel gives by itself.
UPLINK = "ip link add up9 type veth peer name far9 && for l in up9 far9; do ip link set $l up addrgenmode none || exit; done"
INSIDE = {"sh": UPLINK, "in": "c1"}
DEFAULT = [UPLINK, "ip addr add 10.60.0.254/24 dev up9 && ip route add default via 10.60.0.253"]

# plugin: the fields it needs, what the host has to have, what the kernel has to have
KINDS = {
    "ptp": ({}, [], []),
    "macvlan": ({"master": "up9"}, [UPLINK], []),
    "ipvlan": ({"master": "up9"}, [UPLINK], ["ipvlan"]),
    "vlan": ({"master": "up9", "vlanId": 42}, [UPLINK], ["vlan"]),
    "dummy": ({}, [], ["dummy"]),
    "tap": ({}, [], []),
    "host-device": ({"device": "up9"}, [UPLINK], []),
}


def conf(kind, **fields):
    """A configuration of a plugin with an IPAM plugin; a field of None is left out."""
    out = {"type": kind, "ipam": V4}
    out.update(KINDS[kind][0])
    out.update(fields)
    return {k: v for k, v in out.items() if v is not None}


def one(kind, name, fields=None, steps=SHORT, **more):
    """A scenario of one plugin where it has what it needs."""
    _, host, needs = KINDS[kind]
    more = dict({"host": host, "needs": needs}, **more)
    return scenario("%s/%s" % (kind, name), [conf(kind, **fields or {})], steps, **more)


def fake(ips, routes=(), verbs=None, **more):
    """An IPAM plugin with that answer to ADD, and those to other verbs."""
    return {"ipam": {"type": "fake-ipam", "answer": ips if isinstance(ips, (dict, str)) else answer(ips, routes, **more), "answers": verbs or {}}}


ONE = [("10.60.0.2/24", "10.60.0.1")]


def sh(command, where="c1"):
    """A command in a container that changes what a CHECK sees."""
    return {"sh": command, "in": where, "observe": False}


def check(**step):
    """A CHECK that changes nothing worth looking at."""
    return dict({"do": "CHECK", "observe": False}, **step)


# One thing after the other goes, what CHECK looks at last first.
DAMAGE = ["ADD c1", check(add={"prevResult": None}), check(add={"prevResult": {"cniVersion": "1.0.0"}}), check(add={"prevResult": {"cniVersion": "0.4.0"}}),
          check(add={"prevResult": {"cniVersion": "9.9.9"}}), check(netns="/run/netns/c2", c="c2", id="c1"), check(netns="/run/nonexist"), check(**{"if": "eth7"}),
          sh("ip route add 192.0.2.128/25 dev eth0"), check(), sh("ip route del default"), check(), sh("ip addr add 10.60.0.77/24 dev eth0"), check(),
          sh("ip addr del 10.60.0.2/24 dev eth0"), check(), sh("ip link set eth0 down"), check(), sh("ip link set eth0 address 02:00:00:00:60:77 || true"), check(),
          sh("ip link set eth0 name eth5 && ip link add eth0 type bridge"), check(), sh("ip link del eth0"), check(),
          sh("rm /var/lib/cni/networks/net1/10.60.0.2", "host"), check(), sh("ip link set eth5 name eth0"), "DEL c1", "DEL c1"]
# A pair of its own goes together with all that the namespace has (default_device_exit_batch in net/core/dev.c), a moment after its name.
GONE = [{"sh": "ip link add gone0 type veth peer name gone1 netns c1 && ip netns del c1 && while ip link show gone0 >/dev/null 2>&1; do sleep 0.02; done"},
        "DEL c1", "DEL c1"]
# name, fields, steps: what every interface plugin goes through
SHARED = [
    ("v6", {"ipam": V6}, SHORT), ("dual", {"ipam": DUAL}, SHORT), ("static", {"ipam": STATIC}, ["ADD c1", check(), "DEL c1"]),
    ("two-containers", {}, ["ADD c1", "ADD c2", "CHECK c1", "DEL c1", "CHECK c2", "DEL c2"]),
    ("two-interfaces", {}, ["ADD c1 eth0", "ADD c1 eth1", "CHECK c1 eth1", "DEL c1 eth0", "DEL c1 eth1"]),
    ("no-ipam", {"ipam": None}, LIFE), ("ipam-without-type", {"ipam": {"subnet": "10.60.0.0/24"}}, LIFE), ("ipam-unknown", {"ipam": {"type": "nope"}}, ["STATUS"] + FAILS),
    ("ipam-refuses", fake({"code": 123, "msg": "no more", "details": "at all"}), FAILS), ("ipam-without-addresses", fake({"cniVersion": "1.0.0"}), FAILS),
    ("ipam-garbage", fake("no json"), FAILS), ("ipam-answer-old", fake({"cniVersion": "0.2.0", "ip4": {"ip": "10.60.0.2/24", "gateway": "10.60.0.1"}}), SHORT),
    ("ipam-without-gateway", fake([("10.60.0.2/24", None)], [{"dst": "198.18.0.0/15"}]), SHORT),
    ("ipam-route-unreachable", fake(ONE, [{"dst": "198.18.0.0/15", "gw": "172.31.0.1"}]), FAILS),
    ("ipam-same-address-twice", fake(ONE + ONE), FAILS), ("ipam-index", fake({"cniVersion": "1.0.0", "ips": [{"address": "10.60.0.2/24", "interface": 3, "gateway": "10.60.0.1"}]}), SHORT),
    ("ipam-two-of-a-family", fake(ONE + [("10.61.0.2/24", "10.61.0.1")], [{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24", "gw": "10.61.0.1"}]), SHORT),
    ("ipam-del-check-status-fail", fake(ONE, verbs={v: {"code": 101, "msg": v + " failed"} for v in ("DEL", "CHECK", "STATUS")}), ["STATUS", "ADD c1", "CHECK c1", "DEL c1"]),
    ("dns", {"dns": DNS}, SHORT), ("dns-of-both", {"dns": DNS, "ipam": STATIC}, ["ADD c1", "DEL c1"]), ("key-case", {"IPAM": V4, "ipam": None, "DNS": DNS}, SHORT),
    ("damage", {}, DAMAGE), ("damage-v6", {"ipam": DUAL}, ["ADD c1", sh("ip -6 route del default"), check(), sh("ip addr del fd60::2/64 dev eth0"), check(), "DEL c1"]),
    ("netns-gone", {}, ["ADD c1"] + GONE), ("netns-empty", {}, ["ADD c1", {"do": "DEL", "netns": ""}, "DEL c1"]),
    ("netns-a-file", {}, [sh("touch /run/plain", "host"), {"do": "ADD", "netns": "/run/plain"}, {"do": "DEL", "netns": "/run/plain"}]),
    ("del-netns-a-file", {}, ["ADD c1", sh("touch /run/plain", "host"), {"do": "DEL", "netns": "/run/plain"}, "DEL c1"]),
    ("netns-missing", {}, [{"do": v, "netns": "/run/nonexist"} for v in ("ADD", "CHECK", "DEL")]),
    ("interface-gone", {}, ["ADD c1", {"sh": "ip link del eth0", "in": "c1", "may_fail": True}, "CHECK c1", "DEL c1", "DEL c1"]),
    ("interface-there", {}, [{"sh": "ip link add eth0 type veth peer name p0", "in": "c1"}, "ADD c1", "DEL c1"]),
    ("del-before-add", {}, ["DEL c1"]), ("no-ipv6", {"ipam": DUAL}, [{"sh": "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1", "in": "c1"}] + SHORT),
]
SCENARIOS = [one(kind, name, fields, steps, swap=name in ("dual", "two-containers", "netns-gone")) for kind in KINDS for name, fields, steps in SHARED]
SCENARIOS += [one(kind, "version-%s" % v, {}, LIFE if v == VERSIONS[-1] else SHORT, version=v) for kind in KINDS for v in VERSIONS]

NUMBERS = [("mtu", "1400"), ("mtu", 1.5)]
WRONG = {
    "ptp": [("ipMasq", "yes"), ("ipMasqBackend", 5)] + NUMBERS,
    "macvlan": [("master", 5), ("mode", 5), ("mac", 5), ("linkInContainer", 1), ("bcqueuelen", -1), ("bcqueuelen", "5"), ("bcqueuelen", 2**32), ("runtimeConfig.mac", 5)] + NUMBERS,
    "ipvlan": [("master", 5), ("mode", 5), ("linkInContainer", 1)] + NUMBERS,
    "vlan": [("master", 5), ("vlanId", "42"), ("linkInContainer", 1)] + NUMBERS,
    "dummy": [],
    "tap": [("mac", 5), ("multiQueue", 1), ("owner", -1), ("owner", "root"), ("group", 2**32), ("selinuxContext", 5), ("bridge", 5), ("runtimeConfig.mac", 5)] + NUMBERS,
    "host-device": [("device", 5), ("hwaddr", 5), ("kernelpath", 5), ("pciBusID", 5), ("DPDKMode", 5), ("runtimeConfig.deviceID", 5)],
}
SCENARIOS += [wrong_types(kind + "/wrong-types", conf(kind, **fake(ONE)), WRONG[kind], host=KINDS[kind][1], needs=KINDS[kind][2]) for kind in KINDS]


def args(text, verbs=("ADD", "CHECK", "DEL")):
    """Steps with CNI_ARGS."""
    return [{"do": v, "env": {"CNI_ARGS": text}} for v in verbs]


def macs(kind, host=None):
    """Who says which MAC the interface gets, weakest first."""
    given = {"mac": "02:00:00:00:60:01", "capabilities": {"mac": True}}
    here = {} if host is None else {"host": host}
    return [one(kind, "mac", {"mac": given["mac"]}, **here), one(kind, "mac-of-args", given, args("IgnoreUnknown=1;MAC=02:00:00:00:60:02"), **here),
            one(kind, "mac-of-runtime", given, args("IgnoreUnknown=1;MAC=02:00:00:00:60:02"), caps={"mac": "02:00:00:00:60:03"}, **here),
            one(kind, "mac-form", {"mac": "02-AB-00-00-60-0C"}, **here), one(kind, "mac-bad", {"mac": "zz"}, FAILS, **here),
            one(kind, "mac-long", {"mac": "02:00:00:00:60:01:02:03"}, FAILS, **here), one(kind, "mac-multicast", {"mac": "01:00:00:00:60:01"}, FAILS, **here),
            one(kind, "args-unknown", {}, args("FOO=bar"), **here), one(kind, "args-malformed", {}, args("nonsense"), **here)]


MASTERS = [("master-unknown", {"master": "nope"}, FAILS), ("master-in-container", {"master": "up9", "linkInContainer": True}, [INSIDE] + SHORT),
           ("master-in-container-unknown", {"master": "nope", "linkInContainer": True}, FAILS), ("master-down", {}, [sh("ip link set up9 down", "host")] + SHORT),
           ("master-gone", {}, ["ADD c1", {"sh": "ip link del up9"}, "CHECK c1", "DEL c1", "DEL c1"]), ("master-empty", {"master": ""}, FAILS)]
MTUS = [("mtu", {"mtu": 1400}, SHORT), ("mtu-too-large", {"mtu": 9000}, FAILS), ("mtu-negative", {"mtu": -1}, FAILS), ("mtu-small", {"mtu": 68}, SHORT),
        ("mtu-tiny", {"mtu": 20}, FAILS), ("mtu-changed", {"mtu": 1400}, ["ADD c1", sh("ip link set eth0 mtu 1300"), "CHECK c1", "DEL c1"]),
        ("mtu-of-master", {}, [sh("ip link set up9 mtu 1300", "host")] + SHORT)]
SCENARIOS += [one(kind, name, fields, steps) for kind in ("macvlan", "ipvlan", "vlan") for name, fields, steps in MASTERS + MTUS]
# The kernel makes an address's local route when it comes to it.
HOST_V6 = ("ip -6 addr add fd61::1/64 dev up9 nodad && until ip -6 route show table local | grep -q fd61::1; do sleep 0.01; done && "
           "ip -6 route add default via fd61::2 dev up9")
SCENARIOS += [one(kind, "master-of-default-route" + suffix, {"master": None}, steps, host=DEFAULT if suffix == "" else [UPLINK] + host)
              for kind in ("macvlan", "ipvlan") for suffix, host, steps in (
                  ("", [], SHORT), ("-v6", [HOST_V6], SHORT), ("-none", [], FAILS),
                  ("-gone", ["ip addr add 10.61.0.1/24 dev up9 && ip route add default via 10.61.0.2"], ["ADD c1", {"sh": "ip route del default"}, "CHECK c1", "DEL c1"]))]
SCENARIOS += macs("macvlan") + macs("tap")

SCENARIOS += [one("ptp", name, fields, steps, swap=name.startswith("masq")) for name, fields, steps in (
    ("masq", {"ipMasq": True, "ipam": DUAL}, LIFE), ("masq-nftables", {"ipMasq": True, "ipMasqBackend": "nftables", "ipam": DUAL}, LIFE),
    ("masq-iptables", {"ipMasq": True, "ipMasqBackend": "iptables"}, SHORT), ("masq-unknown", {"ipMasq": True, "ipMasqBackend": "foo"}, FAILS),
    ("masq-netns-gone", {"ipMasq": True}, ["ADD c1"] + GONE), ("masq-interface-gone", {"ipMasq": True}, ["ADD c1", {"sh": "ip link del eth0", "in": "c1"}, "DEL c1"]),
    ("mtu", {"mtu": 1400}, SHORT), ("mtu-zero", {"mtu": 0}, SHORT), ("mtu-large", {"mtu": 65535}, SHORT), ("mtu-negative", {"mtu": -1}, FAILS), ("mtu-too-large", {"mtu": 70000}, FAILS),
    ("several-addresses", fake(ONE + [("10.61.0.2/24", "10.61.0.1"), ("fd60::2/64", "fd60::1")], [{"dst": "0.0.0.0/0"}]), SHORT),
    ("host-address", fake([("10.60.0.2/32", "10.60.0.1")], [{"dst": "0.0.0.0/0"}]), SHORT), ("p2p-prefix", fake([("10.60.0.2/31", "10.60.0.3")]), SHORT),
    ("gateway-elsewhere", fake([("10.60.0.2/24", "172.31.0.1")]), SHORT), ("forwarding-on", {"ipam": DUAL}, [sh("sysctl -qw net.ipv4.ip_forward=1", "host")] + SHORT),
    ("host-veth-gone", {}, ["ADD c1", {"sh": "ip link del $(ip -br link show type veth | grep -o '^veth[0-9a-f]*')"}, "CHECK c1", "DEL c1"]),
)]
SCENARIOS += [one("macvlan", "mode-" + mode, {"mode": mode}, SHORT) for mode in ("bridge", "private", "vepa", "passthru")]
SCENARIOS += [one("macvlan", name, fields, steps) for name, fields, steps in (
    ("mode-empty", {"mode": ""}, SHORT), ("mode-unknown", {"mode": "foo"}, FAILS), ("mode-changed", {"mode": "private"}, ["ADD c1", {"do": "CHECK", "add": {"mode": "vepa"}}, "DEL c1"]),
    ("passthru-twice", {"mode": "passthru"}, ["ADD c1", "ADD c2", "DEL c1", "DEL c2"]), ("broadcast-queue", {"bcqueuelen": 2000}, SHORT), ("broadcast-queue-zero", {"bcqueuelen": 0}, SHORT),
    ("default-route-in-container", {"master": None, "linkInContainer": True, "ipam": STATIC}, [INSIDE, sh("ip addr add 10.61.0.1/24 dev up9 && ip route add default via 10.61.0.2"), "ADD c1", "DEL c1"]),
)]
SCENARIOS += [one("ipvlan", "mode-" + (mode or "empty"), {"mode": mode, "ipam": DUAL}, SHORT) for mode in ("", "l2", "l3", "l3s")]
BEFORE = {"cniVersion": "1.0.0", "interfaces": [{"name": "up9"}], "ips": [{"interface": 0, "address": "10.60.0.7/24", "gateway": "10.60.0.1"}], "routes": [{"dst": "0.0.0.0/0"}]}
SCENARIOS += [one("ipvlan", name, fields, steps) for name, fields, steps in (
    ("mode-unknown", {"mode": "foo"}, FAILS), ("mode-changed", {"mode": "l3"}, ["ADD c1", {"do": "CHECK", "add": {"mode": "l2"}}, "DEL c1"]),
    ("modes-of-two", {"mode": "l2"}, ["ADD c1", {"do": "ADD", "c": "c2", "add": {"mode": "l3"}}, "DEL c2", "DEL c1"]),
    ("chained", {"master": None, "ipam": None, "prevResult": BEFORE}, SHORT), ("chained-with-ipam", {"master": None, "prevResult": BEFORE}, SHORT),
    ("chained-without-addresses", {"master": None, "ipam": None, "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "up9"}]}}, FAILS),
    ("chained-without-interface", {"master": None, "prevResult": {"cniVersion": "1.0.0", "interfaces": []}}, FAILS),
    ("chained-with-two", {"master": None, "prevResult": dict(BEFORE, interfaces=[{"name": "up9"}, {"name": "far9"}])}, FAILS),
    ("chained-unreadable", {"master": None, "prevResult": {"cniVersion": "9.9.9"}}, FAILS),
)]
SCENARIOS += [one("vlan", "id-%d" % n, {"vlanId": n}, SHORT if 0 <= n < 4095 else FAILS) for n in (0, 1, 4094, 4095, -1, 70000)]
SCENARIOS += [one("vlan", name, fields, steps) for name, fields, steps in (
    ("no-master", {"master": None}, FAILS), ("id-missing", {"vlanId": None}, SHORT), ("id-changed", {}, ["ADD c1", {"do": "CHECK", "add": {"vlanId": 43}}, "DEL c1"]),
    ("two-of-an-id", {}, ["ADD c1", {"do": "ADD", "c": "c2"}, "DEL c2", "DEL c1"]),
)]
SCENARIOS += [one("tap", name, fields, steps) for name, fields, steps in (
    ("multi-queue", {"multiQueue": True}, SHORT), ("owner", {"owner": 1000}, SHORT), ("group", {"group": 1001}, SHORT), ("owner-and-group", {"owner": 1000, "group": 1001}, SHORT),
    ("owner-root", {"owner": 0, "group": 0}, SHORT), ("all", {"owner": 1, "group": 2, "multiQueue": True, "mtu": 1400, "mac": "02:00:00:00:60:01"}, SHORT),
    ("all-by-command", {"owner": 1, "multiQueue": True, "mtu": 1400, "mac": "02:00:00:00:60:01"}, SHORT),
    ("mtu", {"mtu": 1400}, SHORT), ("mtu-zero", {"mtu": 0}, SHORT), ("mtu-negative", {"mtu": -1}, FAILS), ("mtu-too-large", {"mtu": 100000}, FAILS),
    ("bridge", {"bridge": "br7"}, [{"sh": "ip link add br7 address 02:00:00:00:60:55 type bridge", "in": "c1"}] + SHORT), ("bridge-missing", {"bridge": "br7"}, FAILS),
    ("bridge-is-none", {"bridge": "p0"}, [{"sh": "ip link add p0 type veth peer name p1", "in": "c1"}] + FAILS),
    ("selinux", {"selinuxContext": "system_u:system_r:container_t:s0"}, FAILS),
)]
PATH = "/sys/devices/virtual/net/up9"
BUS = ("mount -t tmpfs tmpfs /sys/bus && cd /sys/bus && mkdir -p pci/devices/0000:00:1f.6/net/up9 pci/devices/0000:00:1f.7/virtio3/net/up9 pci/devices/0000:00:1f.8 "
       "pci/devices/0000:00:1f.9/net auxiliary/devices/mlx5_core.sf.2/net/up9 auxiliary/devices/mlx5_core.sf.3 pci/drivers/e1000 pci/drivers/vfio-pci && "
       "for d in 6 7 9; do ln -s ../../drivers/e1000 pci/devices/0000:00:1f.$d/driver; done && ln -s ../../drivers/vfio-pci pci/devices/0000:00:1f.8/driver")
DEVICE = dict(device=None)
SCENARIOS += [one("host-device", name, dict(DEVICE, **fields), steps, host=[UPLINK, BUS] + host, **more) for name, fields, steps, host, more in (
    ("by-mac", {"hwaddr": "02:00:00:00:60:01"}, SHORT, ["ip link set up9 address 02:00:00:00:60:01"], {}), ("by-mac-unknown", {"hwaddr": "02:00:00:00:60:02"}, FAILS, [], {}),
    ("by-mac-bad", {"hwaddr": "zz"}, FAILS, [], {}), ("by-path", {"kernelpath": PATH}, SHORT, [], {}), ("by-path-slash", {"kernelpath": PATH + "/"}, SHORT, [], {}),
    ("by-path-relative", {"kernelpath": "devices/up9"}, FAILS, [], {}), ("by-path-elsewhere", {"kernelpath": "/sys/class/net/up9"}, FAILS, [], {}),
    ("by-path-missing", {"kernelpath": "/sys/devices/virtual/net/nope"}, FAILS, [], {}), ("by-path-of-no-device", {"kernelpath": "/sys/devices/virtual"}, FAILS, [], {}),
    ("by-pci", {"pciBusID": "0000:00:1f.6"}, SHORT, [], {}), ("by-pci-virtio", {"pciBusID": "0000:00:1f.7"}, SHORT, [], {}), ("by-pci-dpdk", {"pciBusID": "0000:00:1f.8"}, LIFE, [], {}),
    ("by-pci-dpdk-no-ipam", {"pciBusID": "0000:00:1f.8", "ipam": None}, LIFE, [], {}), ("by-pci-no-interface", {"pciBusID": "0000:00:1f.9"}, FAILS, [], {}),
    ("by-pci-missing", {"pciBusID": "0000:00:00.0"}, FAILS, [], {}), ("none", {}, ["STATUS"] + FAILS, [], {}), ("unknown", {"device": "nope"}, FAILS, [], {}),
    ("name-before-mac", {"device": "up9", "hwaddr": "zz", "kernelpath": "x"}, SHORT, [], {}),
    ("alias-there", {"device": "up9"}, SHORT, ["ip link set up9 alias mine"], {}), ("down", {"device": "up9"}, SHORT, ["ip link set up9 down"], {}),
    ("addresses-there", {"device": "up9"}, SHORT, ["ip addr add 10.62.0.1/24 dev up9"], {}),
    ("alias-lost", {"device": "up9"}, ["ADD c1", sh("ip link set eth0 alias ''"), "DEL c1"], [], {}),
    ("name-taken-on-return", {"device": "up9"}, ["ADD c1", {"sh": "ip link add up9 type veth peer name p9"}, "DEL c1"], [], {}),
    ("same-name", {"device": "up9"}, [{"do": v, "if": "up9"} for v in ("ADD", "CHECK", "DEL", "DEL")], [], {}),
) + tuple(("id-" + name, {"capabilities": {"deviceID": True}}, steps, [], {"caps": {"deviceID": device}}) for name, device, steps in (
    ("pci", "0000:00:1f.6", SHORT), ("auxiliary", "mlx5_core.sf.2", SHORT), ("auxiliary-no-interface", "mlx5_core.sf.3", FAILS), ("unknown", "nope", FAILS), ("path", "../../x", FAILS), ("empty", "", FAILS)))]
