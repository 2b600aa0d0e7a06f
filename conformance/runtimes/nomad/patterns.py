# SPDX-License-Identifier: Apache-2.0
"""What users do every day. Each pattern fails unless everything that it asks for comes true."""
import json
import os
import time

from .. import host
from ...side_by_side import traffic
from . import hosts, jobs
from .agent import wait
from .lab import address, published
from .third_party import NOTES


def fingerprint(lab):
    """Every plugin is known to the node by its version."""
    node = lab.agent.get("/v1/node/" + lab.agent.get("/v1/nodes")[0]["ID"])
    versions = {k.rsplit(".", 1)[1]: v for k, v in node["Attributes"].items() if k.startswith("plugins.cni.version.")}
    other = {n: versions.get(n) for n in os.listdir(host.PLUGINS) if n != "cnibox" and versions.get(n, "").split("+")[0] != "v1.9.1"}
    host.expect("plugins that the node does not know as 1.9.1", other, {})
    host.expect("plugins", len(set(versions) - {"cnibox", "third", "flaky"}), 18)


def bridge(lab):
    """Ports that are given and ports that Nomad chooses, two families: from outside, the host and the neighbours."""
    given = lab.run(jobs.job("given", jobs.bridge(static=8080)))
    chosen = lab.run(jobs.job("chosen", jobs.bridge(), 3))
    every = given + chosen
    lab.reach(every)
    lab.reach(every, address=hosts.HOST6)
    for where in ("127.0.0.1", host.HOST):
        lab.reach(every, address=where, namespace="host")
    lab.reach(every, address=hosts.HOST6, namespace="host")
    for to in (host.HOST, hosts.HOST6):
        for a in given + chosen[:1]:
            step = {"from": "out", "to": to, "port": published(a), "server": a["ID"], "listen": 80, "proto": "udp"}
            host.expect("datagram to %s" % to, traffic.connect(step)["reached"], True)
    for neighbour in given[0]["ID"], chosen[0]["ID"]:
        lab.reach(every, namespace=neighbour)
        lab.reach(every, address=hosts.HOST6, namespace=neighbour)
        for family in (4, 6):
            for a in every:
                host.expect("answer of a neighbour's address", hosts.get(address(a, family), 80, neighbour), a["ID"])


def third_party(lab):
    """A network of the operator's with a third party's plugin chained last, which is told whom it is called for."""
    found = lab.run(jobs.job("consul", jobs.cni("consul", LAB_NOTE="kept"), 2))
    lab.reach(found)
    for a in found:
        with open(os.path.join(NOTES, a["ID"])) as f:
            noted = json.load(f)
        host.expect("address that the last plugin saw", noted["ips"][0]["address"], address(a) + "/24")
        args = dict(p.split("=", 1) for p in noted["args"].split(";"))
        host.expect("argument of the job", args.get("LAB_NOTE"), "kept")
        host.expect("argument of Nomad's", args.get("NOMAD_ALLOC_ID"), a["ID"])
    lab.end()
    wait(lambda: not os.listdir(NOTES), "DEL of the last plugin", lab.agent)


def static(lab):
    """An address that the job asks for."""
    found = lab.run(jobs.job("static", jobs.cni("static", IP="10.64.0.77/24", GATEWAY="10.64.0.1")))
    host.expect("address", address(found[0]), "10.64.0.77")
    lab.reach(found)


def macvlan(lab):
    """Addresses of the outside network itself, without ports of the host."""
    found = lab.run(jobs.job("macvlan", jobs.cni("macvlan"), 3, listen="80"))
    for a in found:
        deadline = time.monotonic() + 5
        while hosts.get(address(a), 80) != a["ID"] and time.monotonic() < deadline:
            time.sleep(0.1)
        host.expect("answer to the outside", hosts.get(address(a), 80), a["ID"])


def conflict(lab):
    """A port that is taken goes on to answer as its first owner, and then belongs to the next.

    Nomad counts ports per address of the host and tells the plugins of no address: on a host with two it starts two jobs
    with one port, and lets the third wait.
    """
    first = lab.run(jobs.job("first", jobs.bridge(static=8080)))
    lab.reach(first)
    second = lab.run(jobs.job("second", jobs.bridge(static=8080)))
    lab.submit(jobs.job("third", jobs.bridge(static=8080)))
    wait(lambda: "blocked" in [e["Status"] for e in lab.agent.get("/v1/job/third/evaluations")], "a job that is blocked", lab.agent)
    for where in (host.HOST, hosts.HOST6):
        lab.reach(first, seconds=0, address=where)
    lab.end("third")
    lab.end("first")
    for where in (host.HOST, hosts.HOST6):
        lab.reach(second, address=where)


def sixty(lab):
    """Sixty allocations at once."""
    found = lab.run(jobs.job("sixty", jobs.bridge(), 60), seconds=120)
    lab.reach(found)
    host.expect("failed allocations", lab.failed("sixty"), 0)


def drain(lab):
    """The node is drained, and takes work again."""
    job = jobs.job("drained", jobs.bridge(), 5)
    lab.reach(lab.run(job))
    node = lab.agent.get("/v1/nodes")[0]["ID"]
    lab.agent.ask("PUT", "/v1/node/%s/drain" % node, {"DrainSpec": {"Deadline": 5 * jobs.SECOND}, "MarkEligible": False})
    wait(lambda: not lab.allocations("drained", "running"), "a node without allocations", lab.agent)
    lab.agent.ask("PUT", "/v1/node/%s/eligibility" % node, {"Eligibility": "eligible"})
    lab.reach(lab.running(job))


SHORT = {"fingerprint": fingerprint, "bridge, two families, ports": bridge, "third party's plugin last": third_party, "macvlan": macvlan,
         "static address": static, "host port taken": conflict, "60 at once": sixty}
WHOLE = dict(SHORT, **{"node drained": drain})
