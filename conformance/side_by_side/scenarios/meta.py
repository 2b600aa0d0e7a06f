# SPDX-License-Identifier: Apache-2.0
"""tuning, bandwidth, sbr and vrf, chained behind ptp, bridge or a previous result that the configuration holds."""
from . import FAILS, LIFE, SHORT, VERSIONS, conflist, scenario, wrong_types
from .interfaces import DUAL, GONE, STATIC, V4, V6, args, check, sh

PTP = {"type": "ptp", "ipam": dict(DUAL, routes=DUAL["routes"][:2])}
BRIDGE = {"type": "bridge", "bridge": "br0", "isDefaultGateway": True, "ipMasq": True, "ipam": {"type": "host-local", "ranges": DUAL["ranges"]}}
FLAT = dict(BRIDGE, ipMasq=False)
PLAIN = dict(FLAT, isDefaultGateway=False, isGateway=True)  # for an IPAM plugin with a default route of its own
BEFORE = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "mac": "02:00:00:00:70:01", "sandbox": "/run/netns/c1"}],
          "ips": [{"address": "10.60.0.2/24", "gateway": "10.60.0.1", "interface": 0}]}


def behind(first, name, plugin, steps=SHORT, **more):
    """A chain of two plugins."""
    return scenario("%s/%s" % (plugin["type"], name), [first, plugin], steps, **more)


def alone(kind, name, steps=FAILS, **fields):
    """A plugin that no other one comes before."""
    return scenario("%s/%s" % (kind, name), [dict({"type": kind}, **fields)], steps)


def odd_results(kind, fields, needs=()):
    """Previous results that are missing, unreadable or not about this interface; and an attachment that is half gone."""
    previous = [None, {"cniVersion": "1.0.0"}, {"cniVersion": "9.9.9"}, {"cniVersion": "0.4.0", "ips": []}, {"cniVersion": "1.0.0", "interfaces": [], "ips": []},
                dict(BEFORE, interfaces=[{"name": "eth9", "sandbox": "/run/netns/c1"}]), dict(BEFORE, ips=[{"address": "nonsense"}])]
    lone = [dict({"type": kind}, **fields)]
    return [scenario("%s/result-%d" % (kind, n), lone, FAILS[:2] + ["CHECK c1"], confs={"": {"cniVersion": "1.0.0", "name": "net1", "plugins": [dict(lone[0], prevResult=p)]}},
                     needs=needs) for n, p in enumerate(previous)] + [
        scenario("%s/%s" % (kind, name), [FLAT if "two" in name or kind == "vrf" else PTP] + lone, steps, needs=needs, swap=name == "netns-gone",
                 confs={"alone": {"cniVersion": "1.0.0", "name": "net1", "plugins": lone}}) for name, steps in (
            ("netns-gone", ["ADD c1"] + GONE), ("netns-empty", ["ADD c1", {"do": "DEL", "conf": "alone", "netns": ""}, "DEL c1"]),
            ("netns-a-file", ["ADD c1", {"sh": "touch /run/plain"}, {"do": "DEL", "conf": "alone", "netns": "/run/plain"}, "DEL c1"]),
            ("netns-missing", ["ADD c1", {"do": "DEL", "conf": "alone", "netns": "/run/nonexist"}, "DEL c1"]), ("del-without-prevresult", ["ADD c1", {"do": "DEL", "conf": "alone", "add": {"prevResult": None}}]),
            ("interface-gone", ["ADD c1", sh("ip link del eth0"), "CHECK c1", "DEL c1"]), ("two-containers", ["ADD c1", "ADD c2", "CHECK c1", "DEL c1", "CHECK c2", "DEL c2"]),
            ("two-interfaces", ["ADD c1", "ADD c1 eth1", "CHECK c1 eth1", "CHECK c1", "DEL c1", "CHECK c1 eth1", "DEL c1 eth1"]),
            ("del-before-add", ["DEL c1"]), ("dns-passed-on", [{"do": v, "add": {"dns": {"domain": "d"}}} for v in ("ADD", "CHECK", "DEL")]))]


# ---------------------------------------------------------------- tuning

def tuning(**fields):
    """A tuning plugin."""
    return dict({"type": "tuning"}, **fields)


SHOW = {"sh": "cd /proc/sys/net; grep -H . core/somaxconn ipv4/ip_local_port_range ipv4/tcp_ecn ipv4/conf/eth0.7/rp_filter 2>/dev/null || true", "in": "c1", "show": True, "observe": False}
MANY = {"mac": "02:00:00:00:70:07", "mtu": 1400, "promisc": True, "allmulti": True, "txQLen": 5000, "sysctl": {"net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.log_martians": "1"}}
LATER = {"sysctl": {"net.core.somaxconn": "501"}, "mac": "02:00:00:00:70:09", "mtu": 1300, "promisc": False, "allmulti": False, "txQLen": 0}
ALLOW = ["mkdir -p /etc/cni/tuning && printf '^net.ipv4.conf.IFNAME.[a-z_]*$\\n\\nsomaxconn\\n' > /etc/cni/tuning/allowlist.conf"]
SCENARIOS = [behind(PTP, "version-%s" % v, tuning(**MANY), LIFE if v == VERSIONS[-1] else SHORT, version=v) for v in VERSIONS]
SCENARIOS += [behind(PTP, name, tuning(**fields), SHORT + [SHOW], swap=name in ("all", "promisc")) for name, fields in (
    ("all", MANY), ("nothing", {}), ("mac", {"mac": MANY["mac"]}), ("mac-form", {"mac": "02-AB-00-00-70-0C"}), ("mtu", {"mtu": 1400}), ("promisc", {"promisc": True}), ("promisc-off", {"promisc": False}),
    ("allmulti", {"allmulti": True}), ("allmulti-off", {"allmulti": False}), ("txqlen", {"txQLen": 20000}), ("txqlen-zero", {"txQLen": 0}), ("data-dir", {"dataDir": "/run/other/place", "mtu": 1300}),
    ("args", {"args": {"cni": LATER}, "sysctl": {}}), ("args-over-fields", dict(MANY, args={"cni": LATER})), ("args-null", dict(MANY, args={"cni": {k: None for k in LATER}})), ("args-without-cni", {"args": {}, "mtu": 1400}),
    ("sysctl", {"sysctl": {"net.core.somaxconn": "600", "net.ipv4.ip_local_port_range": "2000 3000", "net.ipv4.conf.all.rp_filter": "2", "net.ipv6.conf.IFNAME.accept_ra": "0"}}),
    ("sysctl-slashes", {"sysctl": {"net/ipv4/tcp_ecn": "1"}}), ("sysctl-ifname-twice", {"sysctl": {"net.ipv4.conf.IFNAME.IFNAME": "1"}}), ("sysctl-spaces", {"sysctl": {"net.ipv4.tcp_ecn": " 1 "}}),
    ("key-case", {"MTU": 1400, "TxQLen": 7, "SysCtl": {"net.core.somaxconn": "600"}}))]
SCENARIOS += [behind(PTP, name, tuning(**fields), FAILS) for name, fields in (
    ("mac-bad", {"mac": "zz"}), ("mac-multicast", {"mac": "01:00:00:00:70:01"}), ("mac-long", {"mac": "02:00:00:00:60:01:02:03"}), ("mtu-too-large", {"mtu": 70000}), ("mtu-tiny", {"mtu": 20}), ("mtu-negative", {"mtu": -1}), ("txqlen-negative", {"txQLen": -1}),
    ("sysctl-unknown", {"sysctl": {"net.nope": "1"}}), ("sysctl-outside", {"sysctl": {"kernel.hostname": "x"}}), ("sysctl-dots", {"sysctl": {"net.ipv4......": "x"}}), ("sysctl-up", {"sysctl": {"net/../../../../etc/x": "x"}}),
    ("sysctl-bad-value", {"sysctl": {"net.core.somaxconn": "nonsense"}}), ("sysctl-empty-value", {"sysctl": {"net.core.somaxconn": ""}}), ("sysctl-empty-key", {"sysctl": {"": "1"}}), ("sysctl-read-only", {"sysctl": {"net.netfilter.nf_conntrack_count": "1"}}),
    ("data-dir-a-file", {"dataDir": "/etc/passwd", "mtu": 1400}))]
SCENARIOS += [
    behind(PTP, "mac-of-args", tuning(mac=MANY["mac"], capabilities={"mac": True}), args("IgnoreUnknown=1;MAC=02:00:00:00:70:02")),
    behind(PTP, "mac-of-runtime", tuning(mac=MANY["mac"], capabilities={"mac": True}), args("IgnoreUnknown=1;MAC=02:00:00:00:70:02"), caps={"mac": "02:00:00:00:70:03"}),
    behind(PTP, "args-unknown", tuning(mtu=1400), args("FOO=bar")), behind(BRIDGE, "bridge", tuning(**MANY), LIFE, swap=True),
    behind(PTP, "sysctl-ifname-dot", tuning(sysctl={"net.ipv4.conf.IFNAME.rp_filter": "2"}), [{"do": "ADD", "if": "eth0.7"}, SHOW, {"do": "CHECK", "if": "eth0.7"}, {"do": "DEL", "if": "eth0.7"}]),
    behind(PTP, "sysctl-twice", tuning(), [{"do": v, "call": "tuning", "stdin": '{"cniVersion":"1.0.0","name":"n","type":"tuning","sysctl":{"net.core.somaxconn":"1","net.core.somaxconn":"2"},"prevResult":{"cniVersion":"1.0.0"}}'} for v in ("ADD", "CHECK", "DEL")]),
    behind(PTP, "damage", tuning(**MANY), ["ADD c1"] + sum(([sh(c), check()] for c in (
        "ip link set eth0 txqueuelen 77", "ip link set eth0 allmulticast off", "ip link set eth0 mtu 1280", "ip link set eth0 promisc off", "ip link set eth0 address 02:00:00:00:70:77", "sysctl -qw net.core.somaxconn=77")), []) +
        [check(add={"prevResult": None}), "DEL c1", "DEL c1"]),
    behind(PTP, "promisc-not-asked", tuning(mtu=1400), ["ADD c1", sh("ip link set eth0 promisc on"), "CHECK c1", "DEL c1"]),
    # Promiscuous for the bridge's sake, without the flag: what DEL restores is what the reference has backed up.
    scenario("tuning/promisc-of-a-port", [PTP], ["ADD c1", sh("ip link add br7 type bridge && ip link set eth0 master br7")] +
             [{"do": v, "conf": "alone", "add": {"prevResult": BEFORE}} for v in ("ADD", "DEL")] + ["DEL c1"], confs={"alone": conflist([tuning(promisc=True, mtu=1400)])}),
    behind(PTP, "backup-gone", tuning(**MANY), ["ADD c1", {"sh": "rm -r /run/cni/tuning"}, "DEL c1"]),
    behind(PTP, "backup-garbage", tuning(**MANY), ["ADD c1", {"sh": "echo nonsense > /run/cni/tuning/c1_eth0.json"}, "DEL c1", "DEL c1"]),
    behind(PTP, "backup-there", tuning(mtu=1400), [sh("mkdir -p /run/cni/tuning && echo '{\"mtu\": 1234}' > /run/cni/tuning/c1_eth0.json", "host"), "ADD c1", "DEL c1"]),
    behind(PTP, "add-twice", tuning(), [{"sh": "ip link add eth0 type veth peer name p0", "in": "c1"}] + [
        {"do": v, "conf": "t"} for v in ("ADD", "ADD", "DEL", "DEL")], confs={"t": {"cniVersion": "1.0.0", "name": "net1", "plugins": [tuning(mtu=1400, txQLen=10, prevResult=BEFORE)]}}),
    alone("tuning", "alone", sysctl={"net.core.somaxconn": "500"}), alone("tuning", "alone-del", ["DEL c1"], mtu="nonsense")]
SCENARIOS += [behind(PTP, "allow-list-" + name, tuning(sysctl={key: "1"}), FAILS, host=host) for name, key, host in (
    ("match", "net.ipv4.conf.IFNAME.log_martians", ALLOW), ("part", "net.core.somaxconn", ALLOW), ("refused", "net.ipv4.tcp_ecn", ALLOW), ("slashes", "net/ipv4/conf/IFNAME/log_martians", ALLOW),
    ("empty", "net.ipv4.tcp_ecn", ["mkdir -p /etc/cni/tuning && : > /etc/cni/tuning/allowlist.conf"]), ("directory", "net.ipv4.tcp_ecn", ["mkdir -p /etc/cni/tuning/allowlist.conf"]))]
SCENARIOS += odd_results("tuning", {"mtu": 1400, "sysctl": {"net.core.somaxconn": "500"}})
SCENARIOS += [wrong_types("tuning/wrong-types", tuning(prevResult=BEFORE), [("sysctl", "x"), ("sysctl", {"net.core.somaxconn": 5}), ("sysctl", {"net.core.somaxconn": None}), ("mac", 5), ("promisc", 1), ("mtu", "1400"), ("mtu", 1.5), ("txQLen", "5"),
    ("allmulti", 1), ("dataDir", 5), ("runtimeConfig.mac", 5), ("args.cni", "x"), ("args.cni.mtu", "x"), ("args.cni.sysctl", []), ("args.cni.mac", 5), ("args.cni.promisc", 5), ("args.cni.allmulti", 5), ("args.cni.txQLen", "x")])]

# ---------------------------------------------------------------- bandwidth

MBIT = {"ingressRate": 8000000, "ingressBurst": 800000, "egressRate": 16000000, "egressBurst": 1600000}


def bandwidth(**fields):
    """A bandwidth plugin."""
    return dict({"type": "bandwidth"}, **fields)


SCENARIOS += [behind(PTP, "version-%s" % v, bandwidth(**MBIT), LIFE if v == VERSIONS[-1] else SHORT, version=v) for v in VERSIONS]
SCENARIOS += [behind(PTP, name, bandwidth(**fields), SHORT, swap=name in ("egress", "ingress")) for name, fields in (
    ("ingress", {"ingressRate": 8000000, "ingressBurst": 800000}), ("egress", {"egressRate": 8000000, "egressBurst": 800000}), ("nothing", {}), ("zeros", {k: 0 for k in MBIT}),
    ("smallest", {"ingressRate": 8, "ingressBurst": 8, "egressRate": 8, "egressBurst": 8}), ("odd", {"ingressRate": 1234567, "ingressBurst": 7654321, "egressRate": 99999, "egressBurst": 11111}),
    ("large", {"ingressRate": 10 ** 10, "ingressBurst": 10 ** 9, "egressRate": 4 * 10 ** 10, "egressBurst": 10 ** 9}), ("huge", {"ingressRate": 10 ** 12, "ingressBurst": 34359738359}),
    ("key-case", {"IngressRate": 8000000, "INGRESSBURST": 800000}))]
SCENARIOS += [behind(PTP, name, bandwidth(**fields), FAILS) for name, fields in (
    ("rate-alone", {"ingressRate": 5}), ("burst-alone", {"egressBurst": 5}), ("burst-too-large", {"ingressRate": 5, "ingressBurst": 8 * (2 ** 32 - 1)}), ("below-a-byte", {"ingressRate": 7, "ingressBurst": 7}))]
CAPABLE = {"capabilities": {"bandwidth": True}}
SCENARIOS += [
    behind(PTP, "of-runtime", bandwidth(**CAPABLE), LIFE, caps={"bandwidth": MBIT}, swap=True), behind(PTP, "of-both", bandwidth(ingressRate=80000, ingressBurst=8000, **CAPABLE), caps={"bandwidth": MBIT}),
    behind(PTP, "zero-of-configuration", bandwidth(ingressRate=0, **CAPABLE), caps={"bandwidth": MBIT}), behind(PTP, "runtime-bad", bandwidth(**CAPABLE), FAILS, caps={"bandwidth": {"ingressRate": 5}}),
    behind(BRIDGE, "bridge", bandwidth(**MBIT), LIFE, swap=True), behind({"type": "macvlan", "master": "up9", "ipam": V4}, "no-veth", bandwidth(**MBIT), FAILS, host=["ip link add up9 type veth peer name far9"]),
    behind(PTP, "mtu", bandwidth(**MBIT), SHORT, confs={"": {"cniVersion": "1.0.0", "name": "net1", "plugins": [dict(PTP, mtu=1300), bandwidth(**MBIT)]}}),
    behind(PTP, "damage", bandwidth(**MBIT), ["ADD c1"] + sum(([sh(c, "host"), check()] for c in (
        "tc qdisc replace dev $(ip -br link show type ifb | cut -d' ' -f1) root tbf rate 5mbit burst 5000 limit 9000", "ip link del $(ip -br link show type ifb | cut -d' ' -f1)",
        "tc qdisc replace dev $(ip -br link show type veth | grep -o '^veth[0-9a-f]*') root tbf rate 5mbit burst 5000 limit 9000", "tc qdisc del dev $(ip -br link show type veth | grep -o '^veth[0-9a-f]*') root")), []) +
        [check(add={"prevResult": None}), "DEL c1", "DEL c1"]),
    behind(PTP, "limits-changed", bandwidth(**MBIT), ["ADD c1", {"do": "CHECK", "add": {"ingressRate": 80000}}, {"do": "CHECK", "add": {"egressBurst": 80000}}, "DEL c1"]),
    behind(PTP, "ifb-gone", bandwidth(**MBIT), ["ADD c1", sh("ip link del $(ip -br link show type ifb | cut -d' ' -f1)", "host"), "DEL c1"]),
    alone("bandwidth", "alone", **MBIT), alone("bandwidth", "alone-nothing", ["CHECK c1", "DEL c1"])]
SCENARIOS += odd_results("bandwidth", MBIT)
SCENARIOS += [wrong_types("bandwidth/wrong-types", bandwidth(prevResult=BEFORE), [("ingressRate", "x"), ("ingressBurst", -1), ("egressRate", 1.5), ("egressBurst", 1000.0), ("runtimeConfig.bandwidth", "x"), ("runtimeConfig.bandwidth", []),
    ("runtimeConfig.bandwidth.ingressRate", "x"), ("runtimeConfig.bandwidth.egressBurst", -5)])]

# ---------------------------------------------------------------- sbr


def sbr(**fields):
    """A source based routing plugin."""
    return dict({"type": "sbr"}, **fields)


def second(*chain, version="1.0.0"):
    """Another network of the container, on eth1."""
    return {"b": {"cniVersion": version, "name": "net2", "plugins": list(chain)}}


B = {"conf": "b", "if": "eth1"}
OTHER = {"type": "bridge", "bridge": "br1", "isGateway": True, "ipam": {"type": "static", "addresses": [{"address": "10.61.0.9/24", "gateway": "10.61.0.1"}, {"address": "fd61::9/64", "gateway": "fd61::1"}],
         "routes": [{"dst": "198.18.0.0/15"}, {"dst": "203.0.113.0/24", "gw": "10.61.0.3", "priority": 7}]}}
TWO_HOMED = ["ADD c1", dict(B, do="ADD"), dict(B, do="CHECK"), dict(B, do="DEL"), dict(B, do="DEL"), "DEL c1"]
SCENARIOS += [behind(PTP, "version-%s" % v, sbr(), LIFE if v == VERSIONS[-1] else SHORT, version=v) for v in VERSIONS]
SCENARIOS += [scenario("sbr/" + name, [BRIDGE], TWO_HOMED, confs=second(first, sbr(**fields)), swap=name in ("two-homed", "table")) for name, first, fields in (
    ("two-homed", OTHER, {}), ("table", OTHER, {"table": 1234}), ("table-zero", OTHER, {"table": 0}), ("table-large", OTHER, {"table": 2 ** 31}), ("table-negative", OTHER, {"table": -1}), ("v4", dict(OTHER, ipam=V4), {}), ("v6", dict(OTHER, ipam=V6), {}),
    ("two-of-a-family", dict(OTHER, ipam={"type": "static", "addresses": [{"address": "10.61.0.9/24", "gateway": "10.61.0.1"}, {"address": "10.62.0.9/24", "gateway": "10.62.0.1"}], "routes": [{"dst": "198.18.0.0/15", "gw": "10.62.0.7"}]}), {}),
    ("same-subnet-twice", dict(OTHER, ipam={"type": "static", "addresses": [{"address": "10.61.0.9/24", "gateway": "10.61.0.1"}, {"address": "10.61.0.10/24", "gateway": "10.61.0.1"}]}), {}),
    ("no-gateway", dict(OTHER, isGateway=False, ipam={"type": "static", "addresses": [{"address": "10.61.0.9/24"}]}), {}),
    ("default-route", dict(OTHER, isDefaultGateway=True), {}), ("key-case", OTHER, {"TABLE": 77}), ("static", dict(OTHER, ipam=STATIC), {}),
    ("gateways", OTHER, {"gateways": ["10.61.0.7", "fd61::7"]}), ("source-hints", OTHER, {"addSourceHints": True}))]
SCENARIOS += [scenario("sbr/" + name, [BRIDGE], ["ADD c1"] + steps, confs=second(OTHER, sbr())) for name, steps in (
    ("tables-taken", [sh("ip link set lo up && ip rule add from 1.2.3.4 table 100 && ip route add 1.0.0.0/8 dev lo table 101"), dict(B, do="ADD"), dict(B, do="DEL")]),
    ("three-interfaces", [dict(B, do="ADD"), dict(B, do="ADD", **{"if": "eth2", "add": {"bridge": "br2", "ipam": V4}}), dict(B, do="DEL"), dict(B, do="DEL", **{"if": "eth2"})]),
    ("rules-gone", [dict(B, do="ADD"), sh("ip rule del from 10.61.0.9"), dict(B, do="DEL")]),
    ("foreign-rules-stay", [dict(B, do="ADD"), sh("ip rule add from 10.61.0.9 to 1.2.3.4 table 55; ip rule add from 10.61.0.0/24 table 56"), dict(B, do="DEL")]),
    ("address-gone", [dict(B, do="ADD"), sh("ip addr flush dev eth1"), dict(B, do="DEL")]))]
SCENARIOS += [alone("sbr", "alone"), alone("sbr", "alone-table", table=7)]
SCENARIOS += odd_results("sbr", {})
SCENARIOS += [wrong_types("sbr/wrong-types", sbr(prevResult=BEFORE), [("table", "x"), ("table", 1.5)])]

# ---------------------------------------------------------------- vrf


def vrf(**fields):
    """A vrf plugin."""
    return dict({"type": "vrf", "vrfname": "blue"}, **fields)


NEEDS = {"needs": ["vrf"]}
SCENARIOS += [behind(FLAT, "version-%s" % v, vrf(), LIFE if v == VERSIONS[-1] else SHORT, version=v, **NEEDS) for v in VERSIONS]
SCENARIOS += [behind(first, name, vrf(**fields), SHORT, swap=name in ("table", "bridge"), **NEEDS) for name, first, fields in (
    ("table", FLAT, {"table": 1234}), ("table-zero", FLAT, {"table": 0}), ("table-main", FLAT, {"table": 254}), ("bridge", BRIDGE, {}), ("static", dict(PLAIN, ipam=STATIC), {}), ("v6", dict(PLAIN, ipam=V6), {}),
    ("ptp", PTP, {}), ("key-case", FLAT, {"VRFName": "red", "TABLE": 7}))]
SCENARIOS += [behind(FLAT, name, vrf(**fields), FAILS, **NEEDS) for name, fields in (
    ("no-name", {"vrfname": ""}), ("name-too-long", {"vrfname": "a" * 16}), ("name-slash", {"vrfname": "a/b"}), ("name-of-interface", {"vrfname": "eth0"}), ("name-of-other-kind", {"vrfname": "lo"}), ("table-too-large", {"table": 2 ** 32}))]
SCENARIOS += [behind(FLAT, name, vrf(**fields), steps, **NEEDS) for name, fields, steps in (
    ("there-already", {}, [{"sh": "ip link add blue type vrf table 55", "in": "c1"}] + SHORT), ("there-with-other-table", {"table": 7}, [{"sh": "ip link add blue type vrf table 55", "in": "c1"}] + FAILS),
    ("there-down", {"table": 55}, [{"sh": "ip link add blue type vrf table 55", "in": "c1"}, "ADD c1", "DEL c1"]),
    ("another-vrf", {}, [{"sh": "ip link add red type vrf table 1; ip link add green type vrf table 3", "in": "c1"}] + SHORT),
    ("two-in-one", {}, ["ADD c1", "ADD c1 eth1", "DEL c1", "CHECK c1 eth1", "DEL c1 eth1"]),
    ("released", {}, ["ADD c1", sh("ip link set eth0 nomaster"), "CHECK c1", "DEL c1"]), ("vrf-gone", {}, ["ADD c1", sh("ip link del blue"), "CHECK c1", "DEL c1"]),
    ("in-another", {}, ["ADD c1", sh("ip link add red type vrf table 9 && ip link set eth0 master red"), "CHECK c1", "DEL c1"]))]
# The plugin before has no routes that it could miss in the main table, so that CHECK comes to vrf.
SCENARIOS += [behind({"type": "dummy", "ipam": {"type": "static", "addresses": [{"address": "10.60.0.9/24"}]}}, "check", vrf(),
                     ["ADD c1", "CHECK c1", sh("ip link set eth0 nomaster"), "CHECK c1", "DEL c1"], needs=["vrf", "dummy"])]
SCENARIOS += odd_results("vrf", {"vrfname": "blue"}, ["vrf"])
SCENARIOS += [wrong_types("vrf/wrong-types", vrf(prevResult=BEFORE), [("vrfname", 5), ("table", "x"), ("table", -1), ("table", 2 ** 32), ("table", 1.5)], **NEEDS),
              scenario("vrf/alone", [vrf()], FAILS, **NEEDS)]
