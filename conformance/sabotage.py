# SPDX-License-Identifier: Apache-2.0
"""What is broken on purpose in the plugins under test, scenario by scenario, to see whether the lanes turn red.

A case is (what it stands for, scenario, plugin, verb, how). HOW is one of: `instead`, what the plugin's place is taken by; `then`,
what is done after the plugin succeeded, in the host's namespace; `edit`, what becomes of what it prints; `exit`.
"""
WRAPPER = r"""#!/bin/sh
# The plugin; at %(verb)s something else than it does.
[ $# = 0 ] || exec %(real)s "$@"
given=$PATH PATH=/usr/sbin:/usr/bin:/sbin:/bin
[ "$CNI_COMMAND" = %(verb)s ] && { %(instead)s
}
out=$(PATH=$given %(real)s) ; rc=$?
if [ "$CNI_COMMAND" = %(verb)s ]; then
  ns=$(basename "${CNI_NETNS:-none}"); veth=$(ip -br link show type veth | grep -o '^veth[0-9a-f]*' | head -1)
  # Once: a repeated call would find it done.
  [ $rc != 0 ] || [ -e /run/lab/sabotaged ] || {
    touch /run/lab/sabotaged
    { %(then)s
    } >/dev/null 2>&1 || touch /run/sabotage-failed
  }
  printf '%%s' "$out" %(edit)s
  exit %(exit)s
fi
printf '%%s' "$out"
exit $rc
"""
# Seen when a sabotage could not be done: then nothing is proved.
FAILED = "/run/sabotage-failed"
NOTHING = {"instead": "exit 0"}


def wrapper(real, verb, instead=":", then=":", edit="", exit="$rc"):
    """The program that takes the place of the plugin at REAL."""
    return WRAPPER % {"real": real, "verb": verb, "instead": instead, "then": then, "edit": edit, "exit": exit}


# A plugin that does nothing and says it went well.
LIVES = {"bridge": "bridge/version-1.1.0", "ptp": "ptp/version-1.1.0", "macvlan": "macvlan/version-1.1.0", "tap": "tap/version-1.1.0", "loopback": "loopback/version-1.1.0",
         "host-device": "host-device/version-1.1.0", "host-local": "host-local/version-1.1.0", "static": "static/version-1.1.0", "dhcp": "dhcp/version-1.1.0",
         "portmap": "portmap/version-1.1.0", "firewall": "firewall/version-1.1.0", "tuning": "tuning/version-1.1.0", "bandwidth": "bandwidth/version-1.1.0",
         "sbr": "sbr/version-1.1.0", "vlan": "vlan/version-1.1.0", "ipvlan": "ipvlan/version-1.1.0", "dummy": "dummy/version-1.1.0", "vrf": "vrf/version-1.1.0"}
CHECKS = {"bridge": "bridge/check-address-gone", "ptp": "ptp/damage", "macvlan": "macvlan/damage", "tap": "tap/damage", "loopback": "loopback/check-after-down",
          "host-device": "host-device/damage", "host-local": "host-local/check-before-add", "static": "static/check-other-addresses", "dhcp": "dhcp/no-daemon",
          "portmap": "portmap/check-chain-gone", "firewall": "firewall/check-forward-jump-gone", "tuning": "tuning/damage", "bandwidth": "bandwidth/damage",
          "sbr": "sbr/result-6", "vlan": "vlan/damage", "ipvlan": "ipvlan/damage", "dummy": "dummy/damage", "vrf": "vrf/check"}
DELETES = dict(LIVES, **{"dhcp": "dhcp/version-1.1.0"})
REFUSE_STATUS = ("ptp", "macvlan", "tap", "host-device", "vlan", "ipvlan", "dummy")
# DEL of these leaves nothing to be seen: static keeps no state, and lo of a container goes with it.
IDLE = {("static", "DEL")}
CASES = [("nothing done at ADD", s, p, "ADD", NOTHING) for p, s in LIVES.items()]
CASES += [("nothing done at CHECK", s, p, "CHECK", NOTHING) for p, s in CHECKS.items()]
CASES += [("nothing done at DEL", s, p, "DEL", NOTHING) for p, s in DELETES.items() if (p, "DEL") not in IDLE]
CASES += [("nothing done at STATUS", p + "/ipam-del-check-status-fail", p, "STATUS", NOTHING) for p in REFUSE_STATUS]
CASES += [("nothing done at STATUS", "bridge/ipam-status-fails", "bridge", "STATUS", NOTHING)]
CASES += [("nothing done at GC", "chains/gc-of-everything", p, "GC", NOTHING) for p in ("bridge", "portmap")]
CASES += [("another answer to VERSION", "%s/version-1.1.0" % p, p, "VERSION", {"edit": "| sed 's/0.3.1/0.3.2/'"}) for p in ("bridge", "host-local", "loopback")]

# What was excused once: whole scenarios, whole verbs, and both directions where one was meant.
GARBAGE = {"instead": "echo garbage; exit 3"}
FLUSH = {"then": "iptables -t nat -I POSTROUTING -s 192.0.2.0/24 -j RETURN"}
DROP = {"then": "iptables -P FORWARD DROP"}
JUNK = {"then": "ip link add junk type veth peer name junk2"}
CASES += [("garbage where a difference is accepted", s, s.split("/")[0], v, GARBAGE) for s, v in (
    ("firewall/iptables-missing", "ADD"), ("firewall/iptables-missing", "DEL"), ("portmap/nftables-protocol-upper-case", "ADD"), ("portmap/nft-long-id", "ADD"),
    ("sbr/source-hints", "ADD"), ("tap/mac-form", "ADD"), ("tap/interface-there", "ADD"), ("tuning/wrong-types", "DEL"), ("bandwidth/wrong-types", "DEL"), ("sbr/table-negative", "ADD"),
    ("tuning/mac-long", "ADD"), ("sbr/netns-gone", "DEL"), ("bridge/default-route-without-gateway", "ADD"))]
CASES += [("rules and links where the reference leaves some", s, s.split("/")[0], "DEL", how) for s in
          ("bridge/del-empty-netns", "portmap/del-without-ports", "bridge/del-netns-gone", "firewall/del-without-prevresult") for how in (FLUSH, DROP, JUNK)]
CASES += [("rules and links where the reference leaves some", "chains/gc-of-everything", "bridge", "GC", how) for how in (FLUSH, DROP, JUNK)]
CASES += [("rules that are not added", "sbr/two-homed", "sbr", "ADD", {"then": "ip -n $ns rule del table 100"}),
          ("rules of the other flavour", "legacy portmap/iptables-v4", "portmap", "ADD", {"then": "iptables-nft -t nat -N OTHER"}),
          ("rules of the other flavour", "portmap/iptables-v4", "portmap", "ADD", {"then": "iptables-legacy -t nat -N OTHER"})]
NOTE = "f=$(find /run/cnibox/attachments -type f | head -1) && "
CASES += [("notes", "bridge/version-1.1.0", "bridge", v, {"then": c}) for v, c in (
    ("ADD", NOTE + "chmod 644 $f"), ("ADD", NOTE + "chown 7:7 $f"), ("ADD", "chmod 755 /run/cnibox"), ("ADD", NOTE + "mv $f /run/note && ln -s /run/note $f"), ("ADD", "touch /run/cnibox/other"),
    ("DEL", "mkdir -p -m 700 /run/cnibox/attachments/00 && (umask 077; echo x > /run/cnibox/attachments/00/c1:net1:eth0)"))]
CASES += [("codes and details", s, p, "ADD", {"edit": "| sed '%s'" % e}) for s, p, e in (
    ("bridge/name-empty", "bridge", 's/"code": [0-9]*/"code": 6/'), ("firewall/policy-unknown", "firewall", 's/"code": [0-9]*/"code": 11/'),
    ("portmap/bad-condition", "portmap", 's/"msg"/"details": "more", "msg"/'))]
# One of everything that is looked at.
AREAS = {
    "neighbours": "ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev $veth nud permanent", "proxies": "ip neigh add proxy 192.0.2.9 dev $veth",
    "forwarding entries": "bridge fdb add 02:00:00:00:00:09 dev $veth master static", "a neighbour's sysctl": "sysctl -w net.ipv4.neigh.$veth.gc_stale_time=7",
    "a sysctl of no interface": "sysctl -w net.ipv4.tcp_fin_timeout=7", "a file's owner": "chown 7:7 /var/lib/cni/networks/net1/last_reserved_ip.0", "/tmp": "touch /tmp/left", "/etc": "touch /etc/left",
    "/var/lib": "touch /var/lib/left", "connections": "conntrack -I -p udp -s 192.0.2.7 -d 198.51.100.1 --sport 1000 --dport 53 -t 600",
    "iptables in the container": "ip netns exec $ns iptables -t nat -N LEFT", "nftables in the container": "ip netns exec $ns nft add table inet left",
    "a table's comment": "nft 'add table inet left { comment \"left\"; }'", "groups": "bridge mdb add dev br0 port $veth grp 239.9.9.9 permanent",
    "transformations": "ip xfrm policy add src 192.0.2.0/24 dst 198.51.100.0/24 dir out",
}
CASES += [("looked at: " + area, "bridge/version-1.1.0", "bridge", "ADD", {"then": command}) for area, command in AREAS.items()]
CASES += [("what goes with the interface", "tuning/all", "tuning", "DEL", {"then": "ip -n $ns link set eth0 mtu 1401"}),
          ("what goes with the interface", "bandwidth/egress", "bandwidth", "DEL", {"then": "tc qdisc replace dev $veth root tbf rate 9mbit burst 100000 latency 25ms"}),
          ("what goes with the interface", "sbr/table", "sbr", "DEL", {"then": "ip -n $ns rule add pref 77 table 77"}),
          ("numbers of VLANs", "vlan/version-1.1.0", "vlan", "ADD", {"then": "m=$(ip -n $ns -j link show eth0 | grep -o '\"address\":\"[^\"]*' | cut -d'\"' -f4); ip -n $ns link del eth0 && ip link add link up9 name tmp9 address $m type vlan id 77 && ip link set tmp9 netns $ns name eth0 && ip -n $ns link set eth0 up"})]
