# SPDX-License-Identifier: Apache-2.0
"""loopback: all versions, chained, odd namespaces."""
from . import LIFE, SHORT, VERSIONS, scenario

LO = {"type": "loopback"}
PREVIOUS = {"cniVersion": "1.0.0", "interfaces": [{"name": "x0", "sandbox": "/somewhere"}],
            "ips": [{"address": "10.1.2.3/24", "interface": 0, "gateway": "10.1.2.1"}],
            "routes": [{"dst": "0.0.0.0/0", "mtu": 1400}], "dns": {"nameservers": ["10.1.2.1"]}}

SCENARIOS = [scenario("loopback/version-%s" % v, [LO], LIFE, version=v) for v in VERSIONS] + [
    scenario("loopback/no-version", [LO], LIFE, version=None),
    scenario("loopback/ifname-ignored", [LO], ["ADD c1 anything", "CHECK c1 anything", "DEL c1 anything"]),
    scenario("loopback/prevresult-passed-through", [dict(LO, prevResult=PREVIOUS)], version="1.1.0"),
    scenario("loopback/prevresult-of-1.1", [dict(LO, prevResult=dict(PREVIOUS, cniVersion="1.1.0", interfaces=[
        {"name": "x0", "mac": "02:00:00:00:00:01", "mtu": 1400, "sandbox": "/somewhere", "socketPath": "/run/a.sock", "pciID": "0000:00:1f.6"}],
        routes=[{"dst": "0.0.0.0/0", "mtu": 1400, "advmss": 1300, "priority": 5, "table": 7, "scope": 0}]))], version="1.1.0"),
    scenario("loopback/prevresult-of-0.4", [dict(LO, prevResult=dict(PREVIOUS, cniVersion="0.4.0", ips=[
        {"version": "4", "address": "10.1.2.3/24", "interface": 0}]))], version="0.3.1"),
    scenario("loopback/ipam-and-dns-ignored", [dict(LO, ipam={"type": "nope"}, dns={"domain": "x"})]),
    scenario("loopback/bad-args-ignored", [LO], [
        {"do": v, "env": {"CNI_ARGS": "none"}} for v in ("ADD", "CHECK", "DEL")]),
    scenario("loopback/no-ipv6", [LO], [{"sh": "sysctl -qw net.ipv6.conf.all.disable_ipv6=1", "in": "c1"}] + SHORT),
    scenario("loopback/other-address-on-lo", [LO], [{"sh": "ip addr add 10.9.9.9/32 dev lo", "in": "c1"}, "ADD c1", "DEL c1"]),
    scenario("loopback/more-addresses-on-lo", [LO], [{"sh": "ip addr add 127.0.0.2/8 dev lo", "in": "c1"}] + SHORT),
    scenario("loopback/check-after-down", [LO], ["ADD c1", {"sh": "ip link set lo down", "in": "c1"}, "CHECK c1", "DEL c1"]),
    scenario("loopback/check-before-add", [LO], ["CHECK c1"]),
    scenario("loopback/del-empty-netns", [LO], ["ADD c1", {"do": "DEL", "netns": ""}]),
    scenario("loopback/del-netns-gone", [LO], ["ADD c1", {"sh": "ip netns del c1"}, "DEL c1"]),
    scenario("loopback/del-netns-is-a-file", [LO], [{"sh": "touch /run/plain"}, {"do": "DEL", "netns": "/run/plain"}]),
    scenario("loopback/add-netns-missing", [LO], [{"do": "ADD", "netns": "/run/nonexist"}]),
    scenario("loopback/own-netns", [LO], [{"do": v, "netns": "/proc/1/ns/net"} for v in ("ADD", "CHECK", "DEL")]),
    scenario("loopback/own-netns-override", [LO], [
        {"do": v, "netns": "/proc/1/ns/net", "env": {"CNI_NETNS_OVERRIDE": o}} for v, o in (("ADD", "1"), ("DEL", "TRUE"))]),
]
