# SPDX-License-Identifier: Apache-2.0
"""Wrong environments, configurations and arguments: what is refused, how, and with nothing done."""
import json

from . import scenario

BRIDGE = {"cniVersion": "1.0.0", "name": "net1", "type": "bridge", "bridge": "br0", "isGateway": True,
          "ipam": {"type": "host-local", "subnet": "10.22.0.0/16"}}
LOCAL = {"cniVersion": "1.0.0", "name": "net1", "type": "host-local", "ipam": {"type": "host-local", "subnet": "10.22.0.0/16"}}
PREVIOUS = {"cniVersion": "1.0.0", "interfaces": [{"name": "br0"}, {"name": "v"}, {"name": "eth0", "sandbox": "/run/netns/c1"}],
            "ips": [{"address": "10.22.0.2/16", "interface": 2}]}
FIREWALL = {"cniVersion": "1.0.0", "name": "net1", "type": "firewall", "prevResult": PREVIOUS}
PORTMAP = {"cniVersion": "1.0.0", "name": "net1", "type": "portmap", "prevResult": PREVIOUS,
           "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}}
LOOPBACK = {"cniVersion": "1.0.0", "name": "net1", "type": "loopback"}
ALL = (BRIDGE, LOCAL, FIREWALL, PORTMAP, LOOPBACK)
VERBS = ("ADD", "CHECK", "DEL")


def calls(conf, verbs=VERBS, stdin=None, **step):
    """One plugin called with the very same text for each verb."""
    text = json.dumps(conf) if stdin is None else stdin
    return [dict({"do": v, "call": conf["type"], "stdin": text}, **step) for v in verbs]


def bad(name, conf, verbs=VERBS, stdin=None, **step):
    """A scenario of wrong input."""
    return scenario("bad-input/%s-%s" % (conf["type"], name), [], calls(conf, verbs, stdin, **step))


def ipam(**fields):
    """LOCAL with other range fields."""
    return dict(LOCAL, ipam=dict({"type": "host-local"}, **fields))


def ports(*entries):
    """PORTMAP with other mappings."""
    return dict(PORTMAP, runtimeConfig={"portMappings": list(entries)})


ENVIRONMENT = {
    "all-missing": {"CNI_CONTAINERID": None, "CNI_NETNS": None, "CNI_IFNAME": None, "CNI_PATH": None},
    "id-missing": {"CNI_CONTAINERID": None}, "id-empty": {"CNI_CONTAINERID": ""}, "id-bad": {"CNI_CONTAINERID": "a/b"},
    "id-starts-with-dot": {"CNI_CONTAINERID": ".a"}, "id-unicode": {"CNI_CONTAINERID": "ü"},
    "netns-missing": {"CNI_NETNS": None}, "ifname-missing": {"CNI_IFNAME": None}, "ifname-long": {"CNI_IFNAME": "abcdefghijklmnop"},
    "ifname-slash": {"CNI_IFNAME": "a/b"}, "ifname-dots": {"CNI_IFNAME": ".."}, "ifname-space": {"CNI_IFNAME": "a b"}, "ifname-colon": {"CNI_IFNAME": "a:b"},
    "ifname-percent": {"CNI_IFNAME": "eth%d"}, "ifname-bad-and-id-missing": {"CNI_IFNAME": "a/b", "CNI_CONTAINERID": None},
    "path-missing": {"CNI_PATH": None}, "path-wrong": {"CNI_PATH": "/nonexist:/run"}, "path-of-colons": {"CNI_PATH": ":::"},
    "netns-nonexist": {"CNI_NETNS": "/nonexist"}, "netns-directory": {"CNI_NETNS": "/run"}, "netns-plain-file": {"CNI_NETNS": "/etc/passwd"},
    "netns-other-kind": {"CNI_NETNS": "/proc/self/ns/mnt"}, "netns-relative": {"CNI_NETNS": "nonsense"},
    "args-no-pair": {"CNI_ARGS": "nonsense"}, "args-trailing": {"CNI_ARGS": "IgnoreUnknown=1;"}, "args-two-equals": {"CNI_ARGS": "IgnoreUnknown=1;A=b=c"},
    "args-unknown": {"CNI_ARGS": "A=b;C=d"}, "args-unknown-ignored": {"CNI_ARGS": "A=b;IgnoreUnknown=TRUE"}, "args-bool": {"CNI_ARGS": "IgnoreUnknown=yes"},
    "args-mac": {"CNI_ARGS": "IgnoreUnknown=1;MAC=zz"}, "args-mac-alone": {"CNI_ARGS": "MAC=02:00:00:00:00:01"}, "args-ip": {"CNI_ARGS": "IgnoreUnknown=1;IP=zz"},
    "args-ip-alone": {"CNI_ARGS": "IP=10.22.0.9"}, "args-key-case": {"CNI_ARGS": "ignoreunknown=1"}, "args-common": {"CNI_ARGS": "CommonArgs=1"},
}
STDIN = {
    "empty": "", "garbage": "nonsense", "cut": '{"cniVersion": "1.0.0", "name": "net1"', "array": "[]", "string": '"x"', "number": "7", "null": "null", "empty-object": "{}",
    "trailing-comma": '{"name": "net1",}', "two-documents": '{"cniVersion": "1.0.0", "name": "net1"} {"name": "b"}', "not-utf8": '{"name": "net1", "x": "\udcff"}',
    "cut-in-a-word": '{"name": "net1", "x": fal', "exponent-missing": '{"name": "net1", "x": [1, 2e]}', "byte-of-a-character": '{"name": "net1", é}', "tab-in-text": '{"name": "n\t1"}',
    "escape-bad": '{"name": "net1", "x": "\\u12g4"}',
    "name-missing": '{"cniVersion": "1.0.0"}', "name-empty": '{"cniVersion": "1.0.0", "name": ""}', "name-bad": '{"cniVersion": "1.0.0", "name": "a b"}',
    "name-slash": '{"cniVersion": "1.0.0", "name": "../a"}', "name-number": '{"cniVersion": "1.0.0", "name": 7}', "name-twice": '{"cniVersion": "1.0.0", "name": "a b", "name": "net1", "type": "x"}',
    "version-unknown": '{"cniVersion": "2.0.0", "name": "net1"}', "version-text": '{"cniVersion": "abc", "name": "net1"}', "version-number": '{"cniVersion": 1, "name": "net1"}',
    "version-odd": '{"cniVersion": "1.0", "name": "net1"}', "version-leading-zero": '{"cniVersion": "01.0.0", "name": "net1"}', "version-old": '{"cniVersion": "0.9.0", "name": "net1"}',
    "version-four-parts": '{"cniVersion": "1.0.0.0", "name": "net1"}', "version-v": '{"cniVersion": "v1.0.0", "name": "net1"}', "version-empty": '{"cniVersion": "", "name": "net1"}',
}
SCENARIOS = [scenario("bad-input/env-" + name, [], [s for c in ALL for s in calls(c, env=env)])
             for name, env in ENVIRONMENT.items()]
SCENARIOS += [scenario("bad-input/stdin-" + name, [], [s for c in ALL for s in calls(c, VERBS + ("STATUS", "GC", "FOO"), stdin=text, observe=c is LOOPBACK)])
              for name, text in STDIN.items()]
SCENARIOS += [
    bad("half-a-pair", LOCAL, stdin=json.dumps(LOCAL)[:-1] + ', "x": "\\ud800"}'),
    scenario("bad-input/commands", [], [s for c in ALL for v in ("add", "FOO", "", "VERSION", " ADD", "STATUS", "GC") for s in calls(c, (v,), stderr=v == "", observe=False)]),
    scenario("bad-input/about", [], [dict(s, env={k: None for k in ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH")}, stderr=True, observe=False)
                                     for c in ALL for s in calls(c, ("ADD",), stdin="")]),
    scenario("bad-input/version-probe", [], [s for c in ALL for s in calls(c, ("VERSION",), stdin='{"cniVersion":"1.1.0"}', observe=False,
                                             env={"CNI_NETNS": "dummy", "CNI_IFNAME": "dummy", "CNI_PATH": "dummy"})]),
]
SCENARIOS += [bad(name, dict(BRIDGE, **fields)) for name, fields in (
    ("mtu-string", {"mtu": "1500"}), ("mtu-float", {"mtu": 1500.5}), ("mtu-integral-float", {"mtu": 1500.0}), ("mtu-negative", {"mtu": -1}), ("mtu-huge", {"mtu": 10 ** 20}), ("gateway-string", {"isGateway": "true"}),
    ("name-number", {"bridge": 5}), ("ipam-string", {"ipam": "x"}), ("ipam-list", {"ipam": []}), ("ipam-type-number", {"ipam": {"type": 1}}), ("vlan-negative", {"vlan": -1}), ("vlan-4095", {"vlan": 4095}), ("vlan-string", {"vlan": "1"}),
    ("trunk-object", {"vlanTrunk": {}}), ("trunk-number", {"vlanTrunk": [1]}), ("trunk-min-only", {"vlanTrunk": [{"minID": 1}]}), ("trunk-max-only", {"vlanTrunk": [{"maxID": 1}]}), ("trunk-min-above-max", {"vlanTrunk": [{"minID": 9, "maxID": 5}]}),
    ("trunk-min-0", {"vlanTrunk": [{"minID": 0, "maxID": 5}]}), ("trunk-max-4095", {"vlanTrunk": [{"minID": 1, "maxID": 4095}]}), ("trunk-id-0", {"vlanTrunk": [{"id": 0}]}), ("trunk-id-4095", {"vlanTrunk": [{"id": 4095}]}),
    ("dns-list", {"dns": []}), ("dns-search-string", {"dns": {"search": "x"}}), ("capabilities-string", {"capabilities": {"mac": "yes"}}), ("args-list", {"args": []}), ("mac-number", {"args": {"cni": {"mac": 1}}}), ("runtime-mac-number", {"runtimeConfig": {"mac": 1}}),
    ("masq-backend-number", {"ipMasqBackend": 1}), ("prevresult-list", {"prevResult": []}), ("prevresult-version", {"prevResult": {"cniVersion": "0.2.0"}}), ("prevresult-bad-ip", {"prevResult": {"cniVersion": "1.0.0", "ips": [{"address": "zz"}]}}),
)]
SCENARIOS += [bad(name, ipam(**fields)) for name, fields in (
    ("no-ranges", {}), ("subnet-text", {"subnet": "x"}), ("subnet-number", {"subnet": 1}), ("subnet-host-bits", {"subnet": "10.22.0.1/24"}), ("subnet-31", {"subnet": "10.22.0.0/31"}), ("subnet-32", {"subnet": "10.22.0.0/32"}), ("subnet-127", {"subnet": "fd00::/127"}),
    ("subnet-v6-host-bits", {"subnet": "fd00::1/64"}), ("subnet-mapped", {"subnet": "::ffff:10.0.0.0/120"}), ("start-outside", {"subnet": "10.22.0.0/24", "rangeStart": "10.23.0.1"}), ("end-outside", {"subnet": "10.22.0.0/24", "rangeEnd": "10.23.0.1"}),
    ("start-above-end", {"subnet": "10.22.0.0/24", "rangeStart": "10.22.0.9", "rangeEnd": "10.22.0.3"}), ("start-text", {"subnet": "10.22.0.0/24", "rangeStart": "x"}), ("start-other-family", {"subnet": "10.22.0.0/24", "rangeStart": "fd00::1"}),
    ("gateway-text", {"subnet": "10.22.0.0/24", "gateway": "x"}), ("ranges-empty", {"ranges": []}), ("set-empty", {"ranges": [[]]}), ("range-without-subnet", {"ranges": [[{}]]}), ("range-no-list", {"ranges": [{"subnet": "10.22.0.0/24"}]}),
    ("mixed-families", {"ranges": [[{"subnet": "10.22.0.0/24"}, {"subnet": "fd00::/64"}]]}), ("overlap-in-set", {"ranges": [[{"subnet": "10.22.0.0/16"}, {"subnet": "10.22.3.0/24"}]]}),
    ("overlap-of-sets", {"ranges": [[{"subnet": "10.22.0.0/16"}], [{"subnet": "10.22.3.0/24"}]]}), ("route-text", {"subnet": "10.22.0.0/24", "routes": [{"dst": "x"}]}), ("route-gateway", {"subnet": "10.22.0.0/24", "routes": [{"dst": "0.0.0.0/0", "gw": "x"}]}),
    ("route-host-bits", {"subnet": "10.22.0.0/24", "routes": [{"dst": "10.1.2.3/8"}]}), ("routes-object", {"subnet": "10.22.0.0/24", "routes": {}}), ("data-dir-number", {"subnet": "10.22.0.0/24", "dataDir": 1}), ("route-mtu-string", {"subnet": "10.22.0.0/24", "routes": [{"dst": "0.0.0.0/0", "mtu": "1"}]}),
)]
SCENARIOS += [
    bad("no-ipam", {k: v for k, v in LOCAL.items() if k != "ipam"}), bad("ipam-null", dict(LOCAL, ipam=None)),
    bad("args-ips-text", dict(LOCAL, args={"cni": {"ips": ["x"]}})), bad("args-ips-string", dict(LOCAL, args={"cni": {"ips": "10.22.0.5"}})),
    bad("runtime-ips-text", dict(LOCAL, runtimeConfig={"ips": ["x"]})), bad("runtime-ranges-bad", dict(LOCAL, runtimeConfig={"ipRanges": [[{"subnet": "x"}]]})),
    bad("two-v4-sets-0.2.0", dict(LOCAL, cniVersion="0.2.0", ipam={"type": "host-local", "ranges": [[{"subnet": "10.22.0.0/24"}], [{"subnet": "10.23.0.0/24"}]]})),
    bad("backend-number", dict(FIREWALL, backend=1)), bad("policy-unknown", dict(FIREWALL, ingressPolicy="x")), bad("policy-number", dict(FIREWALL, ingressPolicy=1)),
    bad("zone-number", dict(FIREWALL, firewalldZone=1)), bad("admin-number", dict(FIREWALL, iptablesAdminChainName=1)), bad("admin-too-long", dict(FIREWALL, iptablesAdminChainName="A" * 40), observe=False),
    bad("prevresult-string", dict(FIREWALL, prevResult="x")), bad("prevresult-old", dict(FIREWALL, prevResult={"cniVersion": "0.2.0", "ip4": {"ip": "1.2.3.4/8"}})),
    bad("prevresult-empty-version", dict(FIREWALL, prevResult={"cniVersion": "", "ips": []})), bad("prevresult-bad-address", dict(FIREWALL, prevResult=dict(PREVIOUS, ips=[{"address": "1.2.3.4"}]))),
    bad("prevresult-interface-text", dict(FIREWALL, prevResult=dict(PREVIOUS, ips=[{"address": "1.2.3.4/8", "interface": "x"}]))),
    bad("prevresult-interface-negative", dict(PORTMAP, prevResult=dict(PREVIOUS, ips=[{"address": "1.2.3.4/8", "interface": -1}]))),
    bad("prevresult-none", {k: v for k, v in PORTMAP.items() if k != "prevResult"}), bad("prevresult-number", dict(PORTMAP, prevResult=7)),
    bad("host-port-0", ports({"hostPort": 0, "containerPort": 80, "protocol": "tcp"})), bad("host-port-negative", ports({"hostPort": -1, "containerPort": 80, "protocol": "tcp"})),
    bad("container-port-0", ports({"hostPort": 80, "containerPort": 0, "protocol": "tcp"})), bad("ports-missing", ports({})), bad("host-port-large", ports({"hostPort": 70000, "containerPort": 80, "protocol": "tcp"})),
    bad("container-port-large", ports({"hostPort": 80, "containerPort": 70000, "protocol": "tcp"})), bad("host-port-string", ports({"hostPort": "80", "containerPort": 80, "protocol": "tcp"})), bad("protocol-empty", ports({"hostPort": 80, "containerPort": 80})),
    bad("protocol-unknown", ports({"hostPort": 80, "containerPort": 80, "protocol": "foo"})), bad("protocol-icmp", ports({"hostPort": 80, "containerPort": 80, "protocol": "icmp"})), bad("host-ip-text", ports({"hostPort": 80, "containerPort": 80, "protocol": "tcp", "hostIP": "x"})),
    bad("mappings-object", dict(PORTMAP, runtimeConfig={"portMappings": {}})), bad("mark-bit-32", dict(PORTMAP, markMasqBit=32)), bad("mark-bit-negative", dict(PORTMAP, markMasqBit=-1)), bad("mark-bit-string", dict(PORTMAP, markMasqBit="1")),
    bad("backend-unknown", dict(PORTMAP, backend="foo")), bad("backend-list", dict(PORTMAP, backend=[])), bad("snat-string", dict(PORTMAP, snat="x")), bad("conditions-string", dict(PORTMAP, conditionsV4="-d x")),
    bad("nft-host-port-large", dict(ports({"hostPort": 70000, "containerPort": 80, "protocol": "tcp"}), backend="nftables")), bad("nft-protocol-unknown", dict(ports({"hostPort": 80, "containerPort": 80, "protocol": "foo"}), backend="nftables")),
    bad("nft-host-ip-text", dict(ports({"hostPort": 80, "containerPort": 80, "protocol": "tcp", "hostIP": "x"}), backend="nftables")), bad("nft-condition-bad", dict(PORTMAP, backend="nftables", conditionsV4=["nonsense"])),
    bad("prevresult-bad", dict(LOOPBACK, prevResult={"cniVersion": "0.2.0"})), bad("prevresult-string", dict(LOOPBACK, prevResult="x")), bad("ipam-number", dict(LOOPBACK, ipam=1)),
]
