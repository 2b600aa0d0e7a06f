# SPDX-License-Identifier: Apache-2.0
"""host-local on its own: every field, allocation order, files, requests."""
from . import SHORT, VERSIONS, scenario

DIR = "/var/lib/cni/networks/net1"
LIFE = ["VERSION", "STATUS", "ADD c1", "ADD c1", "CHECK c1", "ADD c2", "DEL c1", "DEL c1", "ADD c3", "DEL c2", "DEL c3", "GC"]
SMALL = {"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.3", "rangeEnd": "10.9.0.5"}


def local(top=None, **ipam):
    """A configuration with only an ipam part (and TOP)."""
    return [dict({"type": "host-local", "ipam": dict({"type": "host-local"}, **ipam)}, **(top or {}))]


def ranges(*sets):
    """Range sets."""
    return {"ranges": [list(s) for s in sets]}


def asked(*addresses, verb="ADD", **more):
    """A step that asks for addresses through CNI_ARGS."""
    return dict({"do": verb, "env": {"CNI_ARGS": ";".join("IP=" + a for a in addresses)}}, **more)


NET = {"subnet": "10.9.0.0/24"}
NET6 = {"subnet": "fd09::/64"}
SCENARIOS = [scenario("host-local/version-%s" % v, local(subnet="10.9.0.0/24", routes=[
    {"dst": "0.0.0.0/0"}, {"dst": "10.0.0.0/8", "gw": "10.9.0.9", "mtu": 1400, "advmss": 1300, "priority": 5, "table": 7, "scope": 0}]),
    LIFE, version=v) for v in VERSIONS + (None,)]
SCENARIOS += [scenario("host-local/dual-version-%s" % v, local(**ranges([NET], [NET6])), SHORT, version=v) for v in ("0.2.0", "0.3.1", "1.1.0")]
SCENARIOS += [scenario("host-local/" + name, local(**ipam), LIFE, version="1.1.0") for name, ipam in (
    ("range", dict(NET, rangeStart="10.9.0.10", rangeEnd="10.9.0.20")),
    ("gateway", dict(NET, gateway="10.9.0.2")),
    ("gateway-outside", dict(NET, gateway="10.8.0.1")),
    ("gateway-last", dict(NET, gateway="10.9.0.254", rangeStart="10.9.0.253")),
    ("smallest", {"subnet": "10.9.0.0/30"}),
    ("smallest-v6", {"subnet": "fd09::/126"}),
    ("network-and-broadcast-named", dict(NET, rangeStart="10.9.0.0", rangeEnd="10.9.0.255")),
    ("two-ranges-in-a-set", ranges([dict(NET, rangeStart="10.9.0.2", rangeEnd="10.9.0.2"), {"subnet": "10.8.0.0/24"}])),
    ("two-sets-of-v4", ranges([NET], [{"subnet": "10.8.0.0/24"}])),
    ("old-style-and-ranges", dict(NET, **ranges([{"subnet": "10.8.0.0/24"}]))),
    ("dual", ranges([NET], [NET6])), ("v6", ranges([NET6])), ("v6-range", ranges([dict(NET6, rangeStart="fd09::ff", rangeEnd="fd09::101")])),
    ("v6-upper-case", {"subnet": "FD09:0:0::/64"}),
    ("data-dir", dict(NET, dataDir="/run/other/place")),
    ("data-dir-of-nomad", dict(NET, dataDir="/var/run/cni")),
    ("key-case", {"SUBNET": "10.9.0.0/24", "RangeStart": "10.9.0.7"}),
    ("key-twice", dict(NET, SUBNET="10.8.0.0/24")), ("key-twice-before", dict({"SUBNET": "10.8.0.0/24"}, **NET)),
    ("odd-keys", dict(NET, foo=1, gateway="", rangeStart=None, routes=None)),
)]
SCENARIOS += [
    scenario("host-local/full", local(**SMALL), ["ADD c1", "ADD c2", "ADD c3", "ADD c4", "STATUS", "DEL c1", "ADD c4", "DEL c4", "DEL c2", "ADD c1", "ADD c2"]),
    scenario("host-local/three-ranges-in-a-set", local(**ranges([dict(NET, rangeStart="10.9.0.%d" % n, rangeEnd="10.9.0.%d" % (n + 1)) for n in (9, 5, 7)])),
             ["ADD c%d" % n for n in range(1, 4)] + ["DEL c2", "DEL c1", "ADD c4", "ADD c5", "ADD c6", "ADD c7", "ADD c8", "ADD c9", "DEL c5", "DEL c3", "ADD c1", "ADD c2"]),
    scenario("host-local/wraps", local(**SMALL), ["ADD c1", "DEL c1", "ADD c1", "DEL c1", "ADD c1", "DEL c1", "ADD c1"]),
    scenario("host-local/wraps-over-gateway", local(**dict(SMALL, gateway="10.9.0.3")), ["ADD c1", "ADD c2", "ADD c3", "DEL c1", "ADD c3"]),
    scenario("host-local/two-interfaces", local(**NET), ["ADD c1 eth0", "ADD c1 eth1", "CHECK c1 eth1", "DEL c1 eth0", "CHECK c1 eth1", "CHECK c1 eth0", "DEL c1 eth1"]),
    scenario("host-local/second-set-full", local(**ranges([NET], [{"subnet": "10.8.0.0/30"}])), ["ADD c1", "ADD c2", "DEL c1", "ADD c2"]),
    scenario("host-local/resolv-conf", local(resolvConf="/run/resolv.conf", **NET), host=[
        "printf '# c\\n; d\\n\\n nameserver  10.0.0.53 extra\\nnameserver fd00::53\\nnameserver\\ndomain first\\ndomain last\\nsearch a b\\n"
        "search c\\noptions ndots:2 rotate\\nsortlist 1\\nnonsense\\n' > /run/resolv.conf"]),
    scenario("host-local/resolv-conf-0.2.0", local(resolvConf="/run/resolv.conf", **NET), version="0.2.0", host=["echo nameserver 10.0.0.53 > /run/resolv.conf"]),
    scenario("host-local/resolv-conf-missing", local(resolvConf="/run/none", **NET), ["ADD c1", "CHECK c1", "DEL c1"]),
    scenario("host-local/dns-ignored", local(top={"dns": {"domain": "x"}}, **NET), ["ADD c1"]),
    scenario("host-local/long-names", local(**NET), [{"do": v, "id": "a" * 200, "if": "abcdefghijklmno"} for v in ("ADD", "CHECK", "DEL")], net="n" * 100),
    scenario("host-local/name-with-dots", local(**NET), SHORT, net="a.b-c_d"),
    scenario("host-local/any-netns", local(**NET), [{"do": v, "netns": "nonsense"} for v in ("ADD", "CHECK", "DEL")]),
]

OLD = "mkdir -p %s && printf '%%s' c1 > %s/10.9.0.7 && chmod 600 %s/10.9.0.7" % (DIR, DIR, DIR)
SCENARIOS += [
    scenario("host-local/record-without-ifname", local(**NET), ["CHECK c1", "ADD c1", "DEL c1"], host=[OLD]),
    scenario("host-local/record-without-ifname-beside-new", local(**NET), ["ADD c2", "DEL c2", "CHECK c1 eth1", "DEL c1 eth1"], host=[OLD]),
    scenario("host-local/record-with-newline", local(**NET), ["CHECK c1", "ADD c1", "DEL c1"], host=["mkdir -p %s && printf ' c1\\r\\neth0\\n' > %s/10.9.0.2" % (DIR, DIR)]),
    scenario("host-local/foreign-file-is-taken", local(**NET), ["ADD c1", "DEL c1"], host=["mkdir -p %s && echo other > %s/10.9.0.2" % (DIR, DIR)]),
    scenario("host-local/last-reserved-garbage", local(**NET), ["ADD c1", "DEL c1"], host=["mkdir -p %s && echo what > %s/last_reserved_ip.0" % (DIR, DIR)]),
    scenario("host-local/last-reserved-outside", local(**NET), ["ADD c1", "DEL c1"], host=["mkdir -p %s && printf 10.8.0.9 > %s/last_reserved_ip.0" % (DIR, DIR)]),
    scenario("host-local/last-reserved-last", local(**NET), ["ADD c1", "DEL c1"], host=["mkdir -p %s && printf 10.9.0.254 > %s/last_reserved_ip.0" % (DIR, DIR)]),
    scenario("host-local/range-changed-before-del", local(**NET), ["ADD c1", {"do": "DEL", "conf": "b"}], confs={"b": {"cniVersion": "1.0.0", "name": "net1", "plugins": local(subnet="10.7.0.0/24")}}),
    scenario("host-local/name-changed-before-del", local(**NET), ["ADD c1", {"do": "DEL", "conf": "b"}], confs={"b": {"cniVersion": "1.0.0", "name": "net2", "plugins": local(**NET)}}),
    scenario("host-local/file-in-sub-directory", local(**NET), ["DEL c1"], host=["mkdir -p %s/sub && printf 'c1\\r\\neth0' > %s/sub/10.9.0.9" % (DIR, DIR)]),
    scenario("host-local/data-dir-is-a-file", local(dataDir="/run/plain", **NET), ["ADD c1", "DEL c1"], host=["touch /run/plain"]),
    scenario("host-local/check-before-add", local(**NET), ["CHECK c1", "DEL c1"]),
    scenario("host-local/umask", local(**NET), SHORT, host=["umask 077"]),
]

CNI = {"args": {"cni": {"ips": ["10.9.0.78/24"]}}}
CAP = {"capabilities": {"ips": True, "ipRanges": True}}
SCENARIOS += [
    scenario("host-local/ask-by-args", local(**NET), [asked("10.9.0.77"), "CHECK c1", asked("10.9.0.77", c="c2"), "DEL c1", asked("10.9.0.77/8", c="c2"), asked("10.9.0.79", c="c2"), "DEL c2"]),
    scenario("host-local/ask-by-args-others-unknown", local(**NET), [{"do": "ADD", "env": {"CNI_ARGS": "IP=10.9.0.77;FOO=bar"}}, {"do": "ADD", "env": {"CNI_ARGS": "FOO=bar;IP=10.9.0.77;IgnoreUnknown=TRUE"}}, "DEL c1"]),
    scenario("host-local/ask-for-gateway", local(**NET), [asked("10.9.0.1"), "DEL c1"]),
    scenario("host-local/ask-outside", local(**NET), [asked("10.8.0.7"), "DEL c1"]),
    scenario("host-local/ask-outside-range", local(**SMALL), [asked("10.9.0.9"), "DEL c1"]),
    scenario("host-local/ask-again", local(**NET), ["ADD c1", asked("10.9.0.77"), "DEL c1"]),
    scenario("host-local/ask-args-cni", local(top=CNI, **NET), ["ADD c1", "CHECK c1", "DEL c1"]),
    scenario("host-local/ask-args-and-args-cni", local(top=CNI, **ranges([NET], [{"subnet": "10.8.0.0/24"}])), [asked("10.8.0.77"), "DEL c1"]),
    scenario("host-local/ask-runtime-config", local(top=CAP, **ranges([NET], [NET6])), caps={"ips": ["10.9.0.90/24", "fd09::90/64"]}),
    scenario("host-local/ask-runtime-config-no-prefix", local(top=CAP, **ranges([NET], [NET6])), caps={"ips": ["10.9.0.90", "fd09::90"]}),
    scenario("host-local/ask-two-of-a-set", local(top=CAP, **NET), ["ADD c1", "DEL c1"], caps={"ips": ["10.9.0.90", "10.9.0.90"]}),
    scenario("host-local/ask-v6-by-args", local(**NET6), [asked("fd09::77"), "CHECK c1", "DEL c1"]),
    scenario("host-local/ask-v6-long-form", local(**NET6), [asked("fd09:0:0:0::0077"), "DEL c1"]),
    scenario("host-local/ranges-at-run-time", local(top=CAP, **NET), caps={"ipRanges": [[{"subnet": "10.5.0.0/24"}], [{"subnet": "fd05::/64", "rangeStart": "fd05::5", "gateway": "fd05::1"}]]}),
    scenario("host-local/ranges-at-run-time-only", local(top=CAP), caps={"ipRanges": [[{"subnet": "10.5.0.0/24"}]]}),
]
