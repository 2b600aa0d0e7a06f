# SPDX-License-Identifier: Apache-2.0
"""Two sets of plugins on one host: one adds, the other checks and deletes; both take turns; both at once.

A node may switch between the Go plugins and ours with containers running.
Whoever did what, the host must look after every step as if the Go plugins had
done it all.
"""
import concurrent.futures
import re

from . import lane, notes
from .compare import START, Difference, records
from .lane import PARALLEL, Tally
from .scenarios import chains, scenario

# "a" is ours, "b" the reference; see inside.chooser.
TURNS = {
    " (ours adds, Go checks and deletes)": {"ADD": "a", "": "b"},
    " (Go adds, ours checks and deletes)": {"ADD": "b", "": "a"},
    " (c1 by ours, c2 by Go)": {"c1": "a", "c2": "b"},
    " (c1 by Go, c2 by ours)": {"c1": "b", "c2": "a"},
    " (Go adds and checks, ours deletes)": {"DEL": "a", "": "b"},
}
MANY = ["c%d" % n for n in range(1, 9)]


def run(bindir, reference, judge, only=(), without=None, share=slice(None)):
    """The lane; returns pairs of a table and its shortfalls. In the full kernel WITHOUT are the features of the running one; of
    the scenarios SHARE is taken."""
    scenarios = [s for s in lane.chosen(only, without) if s.get("swap")][share]
    tally, problems = Tally(lane.title("Swapped with the Go plugins", without, share), judge), []
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        controls = {s["name"]: pool.submit(lane.played, s, {"a": reference, "b": reference}) for s in scenarios}
        jobs = [(s, label, pool.submit(_differences, s, bindir, reference, rule, controls[s["name"]]))
                for s in scenarios for label, rule in TURNS.items()]
        if without is None:
            jobs += [(s, " (both at once)", pool.submit(_together, s, bindir, reference)) for s in together()
                     if not only or any(o in s["name"] for o in only)]
        for s, label, job in jobs:
            problems += tally.add(s, job, label)
    return tally.outcome(problems)


def _differences(s, ours, reference, rule, control):
    mine = lane.played(s, {"a": ours, "b": reference}, rule)
    return notes.problems(mine, alone=False) + records(mine, control.result())


def together():
    """Eight containers come and go at the same time, half of them each one's."""
    def all_of(verb):
        return {"parallel": [{"do": verb, "c": c, "caps": _port(c), "env": chains.NOMAD_ENV} for c in MANY]}
    first = [{"do": v, "c": "c0", "caps": _port("c0"), "env": chains.NOMAD_ENV} for v in ("ADD", "DEL")]
    steps = first + [all_of("ADD"), all_of("CHECK"), all_of("DEL")]
    return [scenario("together/nomad", chains.nomad(True), steps, version="0.4.0", net="nomad", host=chains.NOMAD_HOST),
            scenario("together/nftables", chains.NFT, steps, net="nft")]


def _port(container):
    return {"portMappings": [{"hostPort": 8000 + int(container[1:]), "containerPort": 80, "protocol": "tcp"}]}


def _together(s, ours, reference):
    """Order is chance here, so this looks at what must hold anyway."""
    turns = {c: "ab"[n % 2] for n, c in enumerate(["c0"] + MANY)}
    steps = [step for step in lane.played(s, {"a": ours, "b": reference}, turns) if step["step"] != START and "part" not in step]
    out = []
    for step in steps:
        for call in step["calls"]:
            if call["exit"]:
                out.append(Difference("%s/%s" % (step["step"][:12], call["plugin"]), call["stdout"], "success"))
    addresses = [ip["address"] for call in steps[2]["calls"] if call["plugin"] == "bridge" and not call["exit"]
                 for ip in call["stdout"][0]["ips"]]
    if len(addresses) != len(set(addresses)):
        out.append(Difference("addresses", sorted(addresses), "no address twice"))
    quiet, end = _shared(steps[1]["state"]), _shared(steps[-1]["state"])
    return out + [Difference("left over/" + k, end.get(k), quiet.get(k)) for k in sorted(set(quiet) | set(end))
                  if quiet.get(k) != end.get(k)]


def _shared(state):
    """What stays of a host after all containers went, by place; without what chance decides."""
    host, files = state["host"], state["files"]
    out = {"iptables": host.get("iptables"), "ip6tables": host.get("ip6tables"), "nft": host["nft"],
           "links": sorted(host["links"]), "routes": [r for r in host["routes"] if "anycast" not in r]}
    out.update({path: f.get("mode") for path, f in files.items() if not re.search(r"last_reserved_ip", path)})
    return out
