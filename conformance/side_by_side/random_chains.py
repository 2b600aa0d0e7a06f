# SPDX-License-Identifier: Apache-2.0
"""Random chains beside the Go plugins: what nobody thought of writing down as a scenario.

A seed gives the same chains again; a scenario's name is its seed, so that one
can be run alone: scripts/conformance random --seed 17 --count 1. Those whose
plugins need what the running kernel lacks are in the full kernel's lane.
"""
import concurrent.futures
import ipaddress
import random

from . import lane, notes
from .compare import records
from .scenarios import VERSIONS, conflist, scenario
from .swap import TURNS

COUNT = 60
UPLINK = "ip link add up9 type veth peer name far9 && for l in up9 far9; do ip link set $l up addrgenmode none || exit; done"

KUBE = "for i in iptables ip6tables; do $i -t nat -N KUBE-MARK-MASQ && $i -t nat -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000 || exit; done"

# Fields and values: half of the fields are given, and one value in twenty is wrong.
YES_NO = ([True, False], ["yes"])
MTU = ([1280, 1400, 1500], [-1, 20, "1400"])
FIELDS: dict[str, dict] = {
    "bridge": {"bridge": (["br0", "br0", "br.7"], ["", "lo", "a" * 16]), "isGateway": YES_NO, "isDefaultGateway": YES_NO, "forceAddress": YES_NO, "ipMasq": YES_NO,
               "ipMasqBackend": (["iptables", "nftables"], ["foo"]), "hairpinMode": YES_NO, "promiscMode": YES_NO, "mtu": MTU, "macspoofchk": YES_NO, "portIsolation": YES_NO,
               "enabledad": ([True], [1]), "disableContainerInterface": ([False], [True]), "dns": ([{"nameservers": ["10.0.0.53"]}, {"domain": "d", "search": ["a"]}], [5])},
    "ptp": {"ipMasq": YES_NO, "ipMasqBackend": (["iptables", "nftables"], ["foo"]), "mtu": MTU, "dns": ([{"nameservers": ["10.0.0.53"]}], ["x"])},
    "macvlan": {"mode": (["bridge", "private", "vepa"], ["nope"]), "mtu": ([1280, 1500], [9000]), "bcqueuelen": ([500, 2000], [-1]), "mac": (["02:00:00:00:00:11"], ["zz"])},
    "tap": {"mtu": ([1280, 1500], ["x"]), "owner": ([1000], ["root"]), "group": ([1000], [-1]), "multiQueue": YES_NO},
    "host-device": {"dns": ([{"domain": "d"}], [5])},
    "ipvlan": {"mode": (["l2", "l3", "l3s"], ["nope"]), "mtu": ([1280, 1500], [9000])},
    "vlan": {"mtu": ([1280, 1500], [9000]), "dns": ([{"domain": "d"}], [5])},
    "dummy": {},
    "firewall": {"backend": (["iptables", ""], ["ipfw"]), "iptablesAdminChainName": (["ADMIN", "NOMAD-ADMIN"], ["a" * 40]), "ingressPolicy": (["open", "same-bridge", "isolated"], ["closed"])},
    "portmap": {"snat": YES_NO, "masqAll": YES_NO, "backend": (["iptables", "nftables"], ["foo"]), "markMasqBit": ([5, 13], [77, "x"]), "externalSetMarkChain": (["KUBE-MARK-MASQ"], []),
                "conditionsV4": ([["-d", "198.51.100.0/24"], ["!", "-s", "192.0.2.1"]], ["x"])},
    "tuning": {"mtu": MTU, "mac": (["02:00:00:00:00:12"], ["zz"]), "promisc": YES_NO, "allmulti": YES_NO, "txQLen": ([0, 500], ["x"]),
               "sysctl": ([{"net.core.somaxconn": "500"}, {"net.ipv4.conf.IFNAME.log_martians": "1"}], [{"kernel.hostname": "x"}])},
    "bandwidth": {"ingressRate": ([8000000], [-1]), "ingressBurst": ([800000], ["x"]), "egressRate": ([1234567], [1.5]), "egressBurst": ([765432], [-1])},
    "sbr": {"table": ([1234], ["x"])},
    "vrf": {"table": ([77, 1234], ["x"])},
}
MAIN = ["bridge"] * 6 + ["ptp"] * 3 + ["macvlan", "tap", "host-device"]
BEHIND = ["firewall", "portmap", "portmap", "tuning", "bandwidth", "sbr"]
# With what the kernel must have; one of them is in every chain of the full kernel's.
RARE_MAIN, RARE_BEHIND = ["ipvlan", "vlan", "dummy"], ["vrf"]
NEEDED = {"macvlan": {"master": "up9"}, "host-device": {"device": "up9"}, "ipvlan": {"master": "up9"}, "vlan": {"master": "up9", "vlanId": 42}, "vrf": {"vrfname": "blue"}}
CAPABILITIES = {"portmap": {"portMappings": 0.9}, "bandwidth": {"bandwidth": 0.3}, "tuning": {"mac": 0.2}, "macvlan": {"mac": 0.3},
                "bridge": {"mac": 0.2, "ips": 0.2, "ipRanges": 0.1}, "ptp": {"ips": 0.2, "ipRanges": 0.1}}

V4 = ["10.22.0.0/16", "10.23.1.0/24", "172.20.0.0/28"]
V6 = ["fd00:22::/64", "fd00:23::/112"]
ROUTES = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "192.0.2.0/24"}, {"dst": "198.18.0.0/15", "priority": 7}, {"dst": "2001:db8::/32"}]
LINK_GONE = ("c1", "ip link del eth0")
FLUSHED = ("host", "iptables -t nat -F POSTROUTING")
DAMAGE = [LINK_GONE, ("c1", "ip addr flush dev eth0"), ("c1", "ip route del default"), FLUSHED,
          ("host", "iptables -t nat -F CNI-HOSTPORT-DNAT"), ("host", "rm -f /var/lib/cni/networks/net1/10.*"), ("host", "ip link set br0 down")]


# The second network of a container: what somebody attaches next to the first.
SECOND = [{"type": "bridge", "bridge": "br1", "isGateway": True, "ipMasq": True, "ipam": {"type": "host-local", "subnet": "10.31.0.0/24"}},
          {"type": "ptp", "ipMasq": True, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.32.0.0/24"}], [{"subnet": "fd00:32::/64"}]]}},
          {"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.33.0.9/24", "gateway": "10.33.0.1"}]}}]
BESIDE = {"conf": "b", "if": "eth1"}


def generated(seed, is_rare=False):
    """The scenario of a seed; a rare one has a plugin that few kernels have what it needs for."""
    rnd = random.Random(seed)
    kinds = _kinds(rnd, is_rare)
    main = kinds[0]
    plugins = [_plugin(rnd, kind) for kind in kinds]
    if main == "ptp" or rnd.random() < 0.92:
        plugins[0]["ipam"] = _ipam(rnd)
    more = {"caps": _caps(rnd, plugins[0]), "host": [UPLINK, KUBE], "needs": [kind for kind in kinds if kind in RARE_MAIN + RARE_BEHIND]}
    if plugins[0].get("isDefaultGateway") is True and "ipam" in plugins[0]:
        # The reference adds the route twice, and fails.
        plugins[0]["ipam"]["routes"] = [r for r in plugins[0]["ipam"]["routes"] if not r["dst"].endswith("/0")]
    # CHECK of the reference fails on every network without IPAM.
    checks = ["CHECK", "CHECK"] if "ipam" in plugins[0] else []
    steps = _steps(rnd, checks, _damage(plugins))
    if main == "bridge" and not any(plugins[0].get(field) is True for field in ("isGateway", "isDefaultGateway")):
        steps = _before_a_toss(steps)
    steps = [_asking(rnd, step, plugins[0]) for step in steps]
    version = rnd.choice(VERSIONS + ("1.0.0", "0.4.0"))
    if rnd.random() < 0.3:
        second = [rnd.choice(SECOND)] + [_plugin(rnd, kind) for kind in rnd.sample(["sbr", "firewall", "portmap"], rnd.randint(0, 2))]
        more["confs"] = {"b": conflist(second, version, "net2")}
        # An address that two containers have is let through until the second one's DEL; the reference's first closes it.
        steps = _among(rnd, steps, ("c1",) if second[0]["ipam"]["type"] == "static" else ("c1", "c2"))
    turns = rnd.choice(["a"] * len(TURNS) + list(TURNS.values()))
    if turns != "a" and seed % 2:
        steps = _in_random_turns(seed, steps)
    name = "random/rare-%d" if is_rare else "random/%d"
    if any(isinstance(step, dict) and step.get("sh") == FLUSHED[1] for step in steps):
        more["known"] = "random/flushed-%d" % seed
    return scenario(name % seed, plugins, steps, version=version, turns=turns, **more)


def _kinds(rnd, is_rare):
    """The plugins of a chain, the one that makes the interface first; at least one is rare, if that is wanted."""
    main, more = rnd.choice(MAIN), rnd.choice([0, 1, 1, 2, 2, 3])
    if not is_rare:
        return [main] + rnd.sample(BEHIND, more)
    if rnd.random() < 0.7:
        return [rnd.choice(RARE_MAIN)] + rnd.sample(BEHIND + RARE_BEHIND, more)
    kinds = RARE_BEHIND + rnd.sample(BEHIND, more)
    rnd.shuffle(kinds)
    return [main] + kinds


def _among(rnd, steps, containers):
    """The steps, and among them those of the second network of these containers; all of it is deleted in the end."""
    out = list(steps)
    for container in containers:
        verbs = ["ADD"] + rnd.sample(["CHECK", "CHECK", "ADD", "DEL"], rnd.randint(0, 2))
        places = sorted(rnd.randint(0, len(out)) for _ in verbs)
        for shift, (place, verb) in enumerate(zip(places, verbs)):
            out.insert(place + shift, dict(BESIDE, do=verb, c=container))
    return out + [dict(BESIDE, do="DEL", c=container) for container in containers]


def _in_random_turns(seed, steps):
    """The steps, each by one set of plugins or the other: a node is swapped and swapped back at any moment of a container's
    life. Chosen apart from the rest, which stays what it was for a seed."""
    rnd = random.Random("turns %d" % seed)
    out = []
    for step in steps:
        if isinstance(step, str):
            step = dict(zip(("do", "c"), step.split()))
        out.append(step if "sh" in step else dict(step, by=rnd.choice("ab")))
    return out


def _plugin(rnd, kind):
    out = dict({"type": kind}, **NEEDED.get(kind, {}))
    is_wrong = False
    for name, (right, wrong) in FIELDS[kind].items():
        if rnd.random() < 0.4:
            # Of two wrong values only one can be named.
            is_wrong, values = (True, wrong) if not is_wrong and (not right or wrong and rnd.random() < 0.05) else (is_wrong, right)
            out[name] = rnd.choice(values)
    capabilities = {name: True for name, chance in CAPABILITIES.get(kind, {}).items() if rnd.random() < chance}
    if capabilities:
        out["capabilities"] = capabilities
    return out


def _caps(rnd, main):
    """What the runtime gives to plugins that ask for it."""
    return {"portMappings": _ports(rnd), "bandwidth": {"ingressRate": 800000, "ingressBurst": 80000}, "mac": "02:00:00:00:00:13",
            "ips": [_inside(rnd, s) for s in _subnets(main)], "ipRanges": [[{"subnet": "10.24.0.0/24"}]]}


def _subnets(main):
    """The subnets of a network, in the order of its families."""
    ipam = main.get("ipam", {})
    sets = [[ipam]] if "subnet" in ipam else ipam.get("ranges", [])
    return [ipaddress.ip_network(r[0]["subnet"]) for r in sets]


def _inside(rnd, subnet):
    """Some address of a subnet, as a runtime asks for it."""
    return "%s/%d" % (subnet[rnd.randint(1, 14)], subnet.prefixlen)


def _asking(rnd, step, main):
    """A step, or the same with wishes in CNI_ARGS."""
    if isinstance(step, dict) or rnd.random() > 0.12:
        return step
    wishes = ["IgnoreUnknown=1", "K8S_POD_NAME=web"] + ["MAC=02:00:00:00:00:14"] * rnd.randint(0, 1)
    wishes += ["IP=" + _inside(rnd, s).split("/")[0] for s in _subnets(main)[:1]]
    verb, container = step.split()
    return {"do": verb, "c": container, "env": {"CNI_ARGS": ";".join(wishes)}}


def _ipam(rnd):
    families = rnd.choice([[V4], [V4], [V6], [V4, V6], [V6, V4]])
    subnets = [rnd.choice(f) for f in families]
    routes = rnd.sample(ROUTES, rnd.choice([0, 1, 2, 3]))
    if rnd.random() < 0.25:
        nets = [ipaddress.ip_network(s) for s in subnets]
        return {"type": "static", "addresses": [{"address": "%s/%d" % (n[9], n.prefixlen), "gateway": str(n[1])} for n in nets], "routes": routes}
    more = {"dataDir": "/run/other"} if rnd.random() < 0.1 else {}
    if len(subnets) == 1 and rnd.random() < 0.5:
        return dict({"type": "host-local", "subnet": subnets[0], "routes": routes}, **more)
    ranges = [[_range(rnd, s)] for s in subnets]
    if rnd.random() < 0.2:
        ranges[0][0]["gateway"] = str(ipaddress.ip_network(subnets[0])[rnd.choice([1, 5])])
    return dict({"type": "host-local", "ranges": ranges, "routes": routes}, **more)


def _range(rnd, subnet):
    """A range of a subnet: the whole of it, or few addresses, which may not be enough."""
    out = {"subnet": subnet}
    if rnd.random() < 0.3:
        first = rnd.randint(1, 9)
        out["rangeStart"], out["rangeEnd"] = (str(ipaddress.ip_network(subnet)[n]) for n in (first, first + rnd.randint(0, 3)))
    return out


def _ports(rnd):
    out = []
    for _ in range(rnd.choice([0, 1, 2, 3])):
        port = {"hostPort": rnd.choice([8080, 8443, 9000, 0]), "containerPort": rnd.choice([80, 443]), "protocol": rnd.choice(["tcp", "udp", "sctp", "TCP"])}
        if rnd.random() < 0.3:
            port["hostIP"] = rnd.choice(["127.0.0.1", "198.51.100.1", "::1", "0.0.0.0"])
        out.append(port)
    return out


def _damage(plugins):
    """What may happen to a container between two calls. The reference finds rules of masquerading and of source routing by
    the interface, and leaves them in the way of whatever comes when that is gone."""
    stays = any(plugin.get("ipMasq") is True or plugin["type"] == "sbr" for plugin in plugins)
    return [damage for damage in DAMAGE if not (stays and damage is LINK_GONE)]


def _steps(rnd, checks, damage):
    steps = ["ADD c1"]
    for _ in range(rnd.randint(1, 6)):
        container = rnd.choice(["c1", "c1", "c2"])
        if rnd.random() < 0.15:
            where, command = rnd.choice(damage)
            steps.append({"sh": command, "in": where, "may_fail": True})
        steps.append("%s %s" % (rnd.choice(["ADD", "DEL"] + checks), container))
    return steps + [check + " c1" for check in checks[:1]] + ["DEL c1", "DEL c2", "DEL c1"]


def _before_a_toss(steps):
    """The steps without the CHECKs behind the second container: a bridge without a gateway has the lowest of its ports'
    random MACs, so whether CHECK still finds the one it was told is a toss."""
    second = steps.index("ADD c2") if "ADD c2" in steps else len(steps)
    return steps[:second] + [step for step in steps[second:] if isinstance(step, dict) or not step.startswith("CHECK")]


def differences(one, ours, reference):
    """What OURS does differently from REFERENCE, alone or in turns with it, up to the first ADD of the reference that
    fails: the host is not the same behind it, since ours is undone, or succeeds."""
    mine = lane.played(one, {"a": ours, "b": reference}, one["turns"])
    other = lane.played(one, {"a": reference, "b": reference})
    strange = notes.problems(mine, alone=one["turns"] == "a")
    end = next((n for n, step in _numbered(other) if _failed_add(step)), None)
    if end is not None:
        last = next(step for n, step in _numbered(other) if n == end and "part" not in step)
        mine, other = ([step for n, step in _numbered(steps) if n <= end] for steps in (mine, other))
        for steps in (mine, other):
            steps[-1].pop("state", None)
        mine[-1]["calls"] = mine[-1]["calls"][:len(last["calls"])]
    return strange + records(mine, other)


def _numbered(steps):
    """(number, step), the parts of a step with its number."""
    number = 1
    for step in steps:
        yield number, step
        number += "part" not in step


def _failed_add(step):
    return step["step"].startswith("ADD") and any(call["exit"] for call in step.get("calls", []))


def run(bindir, reference, judge, only=(), seed=1, count=COUNT, without=None):
    """The lane; returns pairs of a table and its shortfalls. In the full kernel WITHOUT are the features of the running one."""
    scenarios = [generated(s, is_rare=without is not None) for s in range(seed, seed + count)]
    scenarios = [s for s in scenarios if not only or any(o in s["name"] for o in only)]
    title = "Random chains beside the Go plugins, seeds %d to %d" % (seed, seed + count - 1)
    tally, problems = lane.Tally(lane.title(title, without, slice(None)), judge), []
    with concurrent.futures.ThreadPoolExecutor(lane.PARALLEL) as pool:
        jobs = [(s, pool.submit(differences, s, bindir, reference)) for s in scenarios]
        for one, job in jobs:
            problems += tally.add(one, job)
    return tally.outcome(problems)
