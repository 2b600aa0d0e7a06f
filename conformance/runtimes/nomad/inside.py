# SPDX-License-Identifier: Apache-2.0
"""The program in the sandbox: one agent, some patterns, what was found as JSON.

python3 -m conformance.runtimes.nomad.inside NOMAD PACKAGES BINDIR PATTERN...
"""
import json
import os
import sys
import time
import traceback

from .. import host
from . import cluster, faults, figures, hosts, jobs, patterns
from .agent import ROOT, Agent, client
from .lab import Lab
from .watch import Watch, proven

NETWORKS = (jobs.bridge(), jobs.cni("consul"), jobs.cni("static", IP="10.64.0.9/24"), jobs.cni("macvlan"))
EVERY = {**patterns.WHOLE, **faults.WHOLE, **cluster.WHOLE}


def main(nomad, packages, bindir, *names):
    """Plays the patterns of these names one after the other on one host."""
    hosts.prepare(bindir, packages)
    if names[0] == figures.NAME:
        return figures.measured(nomad, [int(n) for n in names[1:]])
    proven()
    if names[0] in cluster.WHOLE:
        lab = cluster.Cluster(nomad)
    else:
        settings = {"bridge_network_subnet": faults.FEW} if isinstance(EVERY[names[0]], faults.Fault) else {}
        lab = Lab(Agent(nomad, ROOT, client=client(**settings)).start())
        lab.warm(*NETWORKS if names[0] in patterns.WHOLE else NETWORKS[:1])
    return {name: played(lab, name) for name in names}


def played(lab, name):
    """One pattern: what it found, whether something failed, what it left, what the agent warned of."""
    lab.facts, start = {}, time.monotonic()
    try:
        _play(lab, EVERY[name])
    except host.RuntimeFailure as e:
        lab.facts["failure"] = str(e)
    except Exception:  # what a pattern did not think of is its failure, and the others are still played
        lab.facts["failure"] = traceback.format_exc()
    return dict(lab.facts, took=round(time.monotonic() - start, 1))


def _play(lab, pattern):
    """Plays a pattern under the eye of a watch; whatever comes of it, its jobs end."""
    before, warned = lab.quiet(), set(lab.warnings())
    watch = Watch()
    watch.start()
    try:
        pattern(lab)
    finally:
        try:
            lab.end()
        finally:
            lab.facts["twice"] = watch.stop()
    lab.facts.update(left=lab.left(before), warnings=sorted(set(lab.warnings()) - warned))


def first_process(argv):
    """Runs main in a child and takes in every orphan: an agent that is killed leaves processes behind."""
    child = os.fork()
    if not child:
        print(json.dumps(main(*argv)), flush=True)
        os._exit(0)
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xff)


if __name__ == "__main__":
    first_process(sys.argv[1:])
