# SPDX-License-Identifier: Apache-2.0
"""Breaks plugins on purpose, one thing at a time: the lab must notice every one of them.

Wrappers run the real plugin and then take one rule, address, file or setting
away again, or change one word of the answer. The Go plugins are broken to see whether
the difference shows where it was made; the plugins under test, to see whether the lane turns
red although the page of known differences is at hand (sabotage.py).
"""
import concurrent.futures
import fnmatch
import os
import shutil
import tempfile

from . import sabotage
from .accepted import Accepted
from .report import Table
from .side_by_side import lane as side_by_side
from .side_by_side import notes
from .side_by_side.compare import records
from .side_by_side.judge import Judge
from .side_by_side.scenarios import chains, scenario
from .upstream import lane as upstream
from .upstream.cache import Cache

UPLINK = ["ip link add up9 type veth peer name far9 && ip link set up9 up addrgenmode none && ip link set far9 up addrgenmode none"]
# plugin, command in the host's namespace, where the difference must show
TAKEN_AWAY = (
    ("bridge", "iptables -t nat -D POSTROUTING 1", "*/iptables/nat/POSTROUTING/*"),
    ("bridge", "ip6tables -t nat -D POSTROUTING 1", "*/ip6tables/nat/POSTROUTING/*"),
    ("bridge", "c=$(iptables -t nat -S | sed -n 's/^-N \\(CNI-[0-9a-f]*\\)$/\\1/p'); iptables -t nat -D $c 1", "*/iptables/nat/CNI-*"),
    ("bridge", "ip addr del 172.26.64.1/20 dev nomad", "*/host/links/nomad/addr_info/172.26.64.1/20*"),
    ("bridge", "ip -n $ns addr del 172.26.64.2/20 dev eth0", "*/c1/links/eth0/addr_info/172.26.64.2/20*"),
    ("bridge", "ip -n $ns -6 route del default", "*/c1/routes/*"),
    ("bridge", "ip link set nomad address 02:00:00:00:00:55", "*/stdout/0/interfaces/0/mac"),
    ("bridge", "ip link set $veth type bridge_slave hairpin off", "*/info_slave_data/hairpin"),
    ("bridge", "ip link set $veth nomaster", "*/links/VETH1/*"),
    ("bridge", "ip link set $veth txqueuelen 5", "*/links/VETH1/txqlen"),
    ("bridge", "ip link set $veth down", "*/links/VETH1/flags/*"),
    ("bridge", "ip -n $ns link set eth0 mtu 1400", "*/c1/links/eth0/mtu"),
    ("bridge", "sysctl -w net.ipv4.ip_forward=0", "*/sysctl/net/ipv4/*"),
    ("bridge", "sysctl -w net.ipv6.conf.$veth.accept_ra=1", "*/links/VETH1/sysctl/ipv6/conf/accept_ra"),
    ("bridge", "ip netns exec $ns sysctl -w net.ipv4.conf.eth0.arp_notify=0", "*/c1/links/eth0/sysctl/ipv4/conf/arp_notify"),
    ("bridge", "ip netns exec $ns sysctl -w net.ipv6.conf.eth0.keep_addr_on_down=0", "*/c1/links/eth0/sysctl/*keep_addr_on_down"),
    ("host-local", "rm /run/cni/nomad/172.26.64.2", "*/files//run/cni/nomad/172.26.64.2/*"),
    ("host-local", "printf 'c1\\neth0' > /run/cni/nomad/172.26.64.2", "*/files//run/cni/nomad/172.26.64.2/content"),
    ("host-local", "chmod 644 /run/cni/nomad/172.26.64.2", "*/files//run/cni/nomad/172.26.64.2/mode"),
    ("host-local", "rm /run/cni/nomad/last_reserved_ip.0", "*/files//run/cni/nomad/last_reserved_ip.0/*"),
    ("loopback", "ip -n $ns link set lo down", "*/c1/links/lo/flags/*"),
    ("firewall", "iptables -D FORWARD 1", "*/iptables/filter/FORWARD/*"),
    ("firewall", "iptables -D CNI-FORWARD 1", "*/iptables/filter/CNI-FORWARD/*"),
    ("firewall", "iptables -A CNI-FORWARD -j NOMAD-ADMIN && iptables -D CNI-FORWARD 1", "*/iptables/filter/CNI-FORWARD/*"),
    ("portmap", "iptables -t nat -D OUTPUT 1", "*/iptables/nat/OUTPUT/*"),
    ("portmap", "iptables -t nat -D CNI-HOSTPORT-DNAT 1", "*/iptables/nat/CNI-HOSTPORT-DNAT/*"),
    ("portmap", "iptables -t nat -D CNI-HOSTPORT-SETMARK 1", "*/iptables/nat/CNI-HOSTPORT-SETMARK/*"),
    ("portmap", "r=$(iptables -t nat -S POSTROUTING | sed -n '2s/^-A //p'); eval iptables -t nat -D $r && eval iptables -t nat -A $r", "*/iptables/nat/POSTROUTING/*"),
    ("portmap", "sysctl -w net.ipv4.conf.nomad.route_localnet=0", "*/links/nomad/sysctl/ipv4/conf/route_localnet"),
    ("portmap", "nft add table inet extra", "*/nft/inet extra/*"),
    ("portmap", "ip rule add pref 77 table 77", "*/rules/*"),
)
# The same for what the other plugins leave, each behind the chain that it is in.
LIMITED = [{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.60.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}, {"type": "tuning", "mtu": 1400, "sysctl": {"net.core.somaxconn": "500"}},
           {"type": "bandwidth", "ingressRate": 8000000, "ingressBurst": 800000, "egressRate": 8000000, "egressBurst": 800000}, {"type": "sbr"}]
IFB = "$(ip -br link show type ifb | cut -d' ' -f1)"
OTHERS = (
    (LIMITED, "ptp", "ip route del 10.60.0.2", "*/host/routes/*"), (LIMITED, "ptp", "ip -n $ns route del 10.60.0.1", "*/c1/routes/*"), (LIMITED, "ptp", "ip addr flush dev $veth", "*/addr_info/10.60.0.1/32*"),
    (LIMITED, "tuning", "rm /run/cni/tuning/c1_eth0.json", "*/files//run/cni/tuning/*"), (LIMITED, "tuning", "echo {} > /run/cni/tuning/c1_eth0.json", "*/files//run/cni/tuning/*/content"),
    (LIMITED, "tuning", "ip -n $ns link set eth0 mtu 1399", "*/c1/links/eth0/mtu"), (LIMITED, "bandwidth", "tc qdisc del dev $veth root", "*/links/VETH1/qdiscs/*"),
    (LIMITED, "bandwidth", "tc filter del dev $veth ingress", "*/links/VETH1/qdiscs/*"), (LIMITED, "bandwidth", "ip link del " + IFB, "*/links/bwp*"),
    (LIMITED, "bandwidth", "tc qdisc replace dev %s root tbf rate 9mbit burst 100000 latency 25ms" % IFB, "*/links/bwp*/qdiscs/*"), (LIMITED, "bandwidth", "ip link set %s txqueuelen 7" % IFB, "*/links/bwp*/txqlen"),
    (LIMITED, "sbr", "ip -n $ns rule del table 100", "*/c1/rules/*"), (LIMITED, "sbr", "ip -n $ns route flush table 100", "*/c1/routes/*"), (LIMITED, "sbr", "ip -n $ns route add default via 10.60.0.1 dev eth0 onlink", "*/c1/routes/*"),
    ([{"type": "macvlan", "master": "up9"}], "macvlan", "ip -n $ns link set eth0 type macvlan mode private", "*/info_data/mode"), ([{"type": "macvlan", "master": "up9"}], "macvlan", "ip -n $ns link set eth0 down", "*/links/eth0/flags/*"),
    ([{"type": "tap", "owner": 7, "group": 8}], "tap", "ip -n $ns link del eth0; ip -n $ns tuntap add mode tap user 9 group 8 name eth0; ip -n $ns link set eth0 up", "*/info_data/user"),
    ([{"type": "host-device", "device": "up9"}], "host-device", "ip -n $ns link set eth0 alias other", "*/links/eth0/ifalias"),
)
# plugin, sed on its output, where the difference must show
ANSWERS = (
    ("bridge", "s/172.26.64.2/172.26.64.9/", "*/stdout/0/ips/0/address"), ("host-local", "s/172.26.64.1\"/172.26.64.3\"/", "*/stdout/0/ips/0/gateway"),
    ("portmap", "s/\"dns\"/\"sdn\"/", "*/stdout/0/dns*"), ("firewall", "s/\"mac\"/\"cam\"/", "*/stdout/0/interfaces/*"),
    ("portmap", "s/$/ trailing/", "*/stdout/*"),
)
REFUSALS = (("portmap", "s/\"code\": 999/\"code\": 100/", "*/stdout/0/code"), ("portmap", "s/between/among/", "*/stdout/0/msg"))


def run(bindir, judge):
    """The lane; returns pairs of a table and what went unnoticed."""
    return [_reference_broken(), judged(bindir, Cache().ready().reference, judge)]


def judged(bindir, reference, judge, without=None):
    """The plugins under test broken and judged as in the other lanes. In the full kernel WITHOUT are the features of the
    running one: then only what needs more."""
    # What is accepted is never taken from plugins that are broken.
    judge = Judge(judge.known, Accepted() if judge.accepted is not None else None)
    table = Table("Breaking the plugins under test, judged with the page of known differences" + (", full kernel" if without is not None else ""), ["broken", "cases", "noticed"])
    scenarios = {s["name"]: s for s in side_by_side.chosen((), without)}
    cases = [case for case in sabotage.CASES if case[1] in scenarios]
    names = sorted({case[1] for case in cases})
    with concurrent.futures.ThreadPoolExecutor(side_by_side.PARALLEL) as pool:
        controls = dict(zip(names, pool.map(lambda n: side_by_side.played(scenarios[n], {"a": reference}), names)))
        turned = list(pool.map(lambda case: _turns_red(bindir, judge, case, scenarios, controls), cases))
        # The wrapper by itself must be green, or its cases prove nothing.
        whole = list(dict.fromkeys(("unbroken", scenario, plugin, "NOTHING", frozenset()) for _, scenario, plugin, *_ in cases))
        disturbed = list(pool.map(lambda case: _turns_red(bindir, judge, case, scenarios, controls), whole))
    for group in dict.fromkeys(c[0].split(":")[0] for c in cases):
        mine = [ok for ok, c in zip(turned, cases) if c[0].split(":")[0] == group]
        table.add(group, len(mine), sum(mine))
    return table, ["not noticed: %s: %s: %s of %s: %s" % case for ok, case in zip(turned, cases) if not ok] + \
        ["an unbroken wrapper is red: %s: %s" % case[1:3] for red, case in zip(disturbed, whole) if red]


def _turns_red(bindir, judge, case, scenarios, controls):
    """Whether a scenario is red with one plugin of BINDIR broken."""
    _, name, plugin, verb, how = case
    directory = _directory(bindir, plugin, sabotage.wrapper(os.path.join(bindir, plugin), verb, **dict(how)))
    try:
        mine = side_by_side.played(scenarios[name], {"a": directory})
    finally:
        shutil.rmtree(directory)
    found = notes.problems(mine, alone=True) + records(mine, controls[name])
    done = not any(sabotage.FAILED in step.get("state", {}).get("files", {}) for step in mine)
    return done and bool(judge.judge(scenarios[name], "", found)[0])


def _reference_broken():
    """The Go plugins broken; the difference must be where it was made."""
    cache = Cache().ready()
    table, problems = Table("Breaking the Go plugins", ["broken", "cases", "noticed"]), []
    good, refused = _chain(13), _chain(77)
    cases = [("rules, addresses, files, settings", good, p, c, "", "$rc", w) for p, c, w in TAKEN_AWAY]
    others = {str(plugins): scenario("self-test/others", plugins, ["ADD c1"], host=UPLINK) for plugins, *_ in OTHERS}
    cases += [("addresses, routes, rules, limits, backups of the other plugins", others[str(plugins)], p, c, "", "$rc", w) for plugins, p, c, w in OTHERS]
    cases += [("answers", good, p, ":", "| sed '%s'" % e, "$rc", w) for p, e, w in ANSWERS]
    cases += [("errors", refused, p, ":", "| sed '%s'" % e, "$rc", w) for p, e, w in REFUSALS]
    cases += [("errors", refused, "portmap", ":", "", "3", "*/calls/3/exit")]
    controls = {id(s): side_by_side.played(s, {"a": cache.reference}) for s in [good, refused] + list(others.values())}
    with concurrent.futures.ThreadPoolExecutor(side_by_side.PARALLEL) as pool:
        found = list(pool.map(lambda case: _noticed(cache, case, controls), cases))
        problems += _undisturbed(cache, good, controls)
    for group in dict.fromkeys(c[0] for c in cases):
        mine = [ok for ok, c in zip(found, cases) if c[0] == group]
        table.add(group, len(mine), sum(mine))
    problems += ["not noticed: %s: %s %s" % (c[2], c[3], c[4]) for ok, c in zip(found, cases) if not ok]
    noticed = _upstream_notices(cache)
    table.add("a plugin that upstream's suite exercises", 1, int(noticed))
    return table, problems + ([] if noticed else ["the upstream lane did not notice a loopback that does nothing"])


def _chain(mark_bit):
    plugins = chains.nomad(True)
    plugins[-1] = dict(plugins[-1], markMasqBit=mark_bit)
    return scenario("self-test/nomad", plugins, [{"do": "ADD", "caps": chains.PORTS, "env": chains.NOMAD_ENV}],
                    version="0.4.0", net="nomad", host=chains.NOMAD_HOST)


def _noticed(cache, case, controls):
    """Whether the differences of one broken plugin include the place it was broken at."""
    _, played, plugin, command, edit, exit_, where = case
    directory = _broken(cache, plugin, then=command, edit=edit, exit=exit_)
    try:
        found = records(side_by_side.played(played, {"a": directory}), controls[id(played)])
    finally:
        shutil.rmtree(directory)
    places = [d.place for d in found]
    return any(fnmatch.fnmatchcase(p, where) for p in places) and not any(sabotage.FAILED in p for p in places)


def _undisturbed(cache, played, controls):
    """The wrapper by itself must make no difference, or the cases above prove nothing."""
    directory = _broken(cache, "bridge")
    found = records(side_by_side.played(played, {"a": directory}), controls[id(played)])
    shutil.rmtree(directory)
    return ["an unbroken wrapper differs: %s" % d for d in found]


def _broken(cache, plugin, **how):
    """A directory with the Go plugins, one of them wrapped at ADD."""
    return _directory(cache.reference, plugin, sabotage.wrapper(os.path.join(cache.reference, plugin), "ADD", **how))


def _directory(plugins, replaced, program):
    """A directory with the PLUGINS of another, the REPLACED one being a PROGRAM."""
    directory = tempfile.mkdtemp(prefix="self-test.")
    os.chmod(directory, 0o755)
    for other in os.listdir(plugins):
        if other != replaced:
            os.symlink(os.path.join(plugins, other), os.path.join(directory, other))
    path = os.path.join(directory, replaced)
    with open(path, "w") as f:
        f.write(program)
    os.chmod(path, 0o755)
    return directory


class _NothingKnown:
    """A known-differences page without lines."""

    @staticmethod
    def line(_suite, _what):
        """Nothing is explained."""
        return None


def _upstream_notices(cache):
    """A loopback that leaves lo down must turn the upstream lane red."""
    directory = _broken(cache, "loopback", then="ip link set lo down", exit="1")
    _, problems = upstream.run(directory, os.path.join(cache.root, "self-test", "run"), _NothingKnown, only=("loopback",))
    shutil.rmtree(os.path.join(cache.root, "self-test"))
    shutil.rmtree(directory)
    return bool(problems)
