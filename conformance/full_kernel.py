# SPDX-License-Identifier: Apache-2.0
"""What this machine's kernel lacks, run in the complete one that scripts/full-kernel boots.

Upstream's suites run there one guest per suite; the scenarios that need what the
running kernel lacks run in one guest all together (this module, as a program).
"""
import json
import os
import subprocess
import sys

from .known import Known
from .report import Table
from .side_by_side import lane as side_by_side
from .side_by_side import swap
from .upstream import lane as upstream
from .upstream.debian import LabError

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRIPT = os.path.join(ROOT, "scripts", "full-kernel")


def run(bindir, reference, workdir, known, only, share=slice(None)):
    """The lane; a list of (table, shortfalls). Of suites and scenarios SHARE is taken."""
    p = subprocess.run([SCRIPT, "--prepare"])
    if p.returncode:
        raise LabError("scripts/full-kernel --prepare: exit %d" % p.returncode)
    return [upstream.run(bindir, workdir, known, full_kernel=True, only=only, share=share)] + \
        _scenarios(bindir, reference, known, only, share)


def _scenarios(bindir, reference, known, only, share):
    env = dict(os.environ, FULLKERNEL_RW="", PYTHONPATH=ROOT, PYTHONDONTWRITEBYTECODE="1")
    here = ",".join(side_by_side.features())
    guest = [SCRIPT, sys.executable, "-m", "conformance.full_kernel", os.path.realpath(bindir), reference, here]
    p = subprocess.run(guest + [str(share.start or 0), str(share.step or 1)] + list(only),
                       cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    if p.returncode:
        raise LabError("the scenarios in the full kernel: exit %d\n%s" % (p.returncode, p.stdout[-2000:]))
    out = []
    answers = json.loads(p.stdout.splitlines()[-1])
    known.note_used(answers["used"])
    for answer in answers["outcomes"]:
        table = Table(answer["title"], answer["columns"])
        table.rows, table.notes = answer["rows"], answer["notes"]
        out.append((table, answer["problems"]))
    return out


def _guest(bindir, reference, without, share, only):
    """In the guest: the scenarios, and their outcome as the last line."""
    known = Known()
    outcomes = [lane.run(bindir, reference, known, only, without, share) for lane in (side_by_side, swap)]
    print(json.dumps({"outcomes": [dict(vars(table), problems=problems) for table, problems in outcomes], "used": known.used()}))


if __name__ == "__main__":
    _guest(sys.argv[1], sys.argv[2], sys.argv[3].split(","), slice(int(sys.argv[4]), None, int(sys.argv[5])), sys.argv[6:])
