# SPDX-License-Identifier: Apache-2.0
"""What this machine's kernel lacks, run in the complete one that scripts/full-kernel boots.

Upstream's suites run there one guest per suite; the scenarios that need what the
running kernel lacks run in one guest all together (this module, as a program).
"""
import json
import os
import subprocess
import sys

from . import self_test
from .accepted import Accepted
from .known import Known
from .report import Table
from .side_by_side import lane as side_by_side
from .side_by_side import random_chains, swap
from .side_by_side.judge import Judge
from .upstream import lane as upstream
from .upstream.debian import LabError

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRIPT = os.path.join(ROOT, "scripts", "full-kernel")


def run(bindir, reference, workdir, judge, only, share=slice(None), seeds=(1, 0)):
    """The lane; a list of (table, shortfalls). Of suites and scenarios SHARE is taken, of random chains those of so many SEEDS
    from the first on."""
    p = subprocess.run([SCRIPT, "--prepare"])
    if p.returncode:
        raise LabError("scripts/full-kernel --prepare: exit %d" % p.returncode)
    return [upstream.run(bindir, workdir, judge.known, full_kernel=True, only=only, share=share)] + \
        _scenarios(bindir, reference, judge, only, share, seeds)


def _scenarios(bindir, reference, judge, only, share, seeds):
    env = dict(os.environ, FULLKERNEL_RW="", PYTHONPATH=ROOT, PYTHONDONTWRITEBYTECODE="1")
    here = side_by_side.features()
    how = {"bin": os.path.realpath(bindir), "reference": reference, "without": here, "share": [share.start or 0, share.step or 1], "only": list(only), "seeds": seeds,
           "accepted": "none" if judge.accepted is None else "renewed" if judge.accepted.renewing else "kept"}
    p = subprocess.run([SCRIPT, sys.executable, "-m", "conformance.full_kernel", json.dumps(how)],
                       cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    if p.returncode:
        raise LabError("the scenarios in the full kernel: exit %d\n%s" % (p.returncode, p.stdout[-2000:]))
    out = []
    answers = json.loads(p.stdout.splitlines()[-1])
    judge.known.note_used(answers["used"])
    if judge.accepted is not None and judge.accepted.renewing:
        judge.accepted.take(answers["accepted"])
    for answer in answers["outcomes"]:
        table = Table(answer["title"], answer["columns"])
        table.rows, table.notes = answer["rows"], answer["notes"]
        out.append((table, answer["problems"]))
    return out


def _guest(how):
    """In the guest: the scenarios, and their outcome as the last line."""
    accepted = None if how["accepted"] == "none" else Accepted(how["accepted"] == "renewed")
    judge = Judge(Known(), accepted)
    share = slice(how["share"][0], None, how["share"][1])
    outcomes = [outcome for lane in (side_by_side, swap)
                for outcome in lane.run(how["bin"], how["reference"], judge, how["only"], how["without"], share)]
    seed, count = how["seeds"]
    outcomes += random_chains.run(how["bin"], how["reference"], Judge(judge.known), how["only"], seed, count, how["without"])
    if not how["only"]:
        outcomes.append(self_test.judged(how["bin"], how["reference"], judge, how["without"]))
    print(json.dumps({"outcomes": [dict(vars(table), problems=problems) for table, problems in outcomes], "used": judge.known.used(),
                      "accepted": accepted.answers() if accepted else {}}))


if __name__ == "__main__":
    _guest(json.loads(sys.argv[1]))
