# SPDX-License-Identifier: Apache-2.0
"""Runs the lanes, prints their tables and writes target/conformance/report.md.

See conformance/README.md. Exit status: 0, or 1 when a lane found a shortfall
or could not run, or 2 for misuse.
"""
import argparse
import os
import shutil
import subprocess
import sys
import time

from . import full_kernel, kept, needs, self_test
from .accepted import Accepted
from .hosts import lane as hosts
from .known import Known
from .report import Table
from .runtimes import lane as runtimes
from .runtimes import short, soak
from .runtimes.nomad import lane as nomad
from .side_by_side import lane as side_by_side
from .side_by_side import random_chains, swap
from .side_by_side.judge import Judge
from .upstream import lane as upstream
from .upstream.cache import Cache
from .upstream.debian import LabError

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(ROOT, "target", "conformance")
KEPT = os.path.join(OUT, "docs")
REFERENCE = "reference"
LONG = 1200  # seconds of a soak that the documents have for itself


class Lab:
    """What the lanes share: the directory under test, the control, the page of known differences."""

    def __init__(self, args):
        self.only, self.seed, self.count, self.update_docs = args.only, args.seed, args.count, args.update_docs
        self.share = share(args)
        self.reference = Cache().ready().reference
        self.bin = self.reference if args.bin == REFERENCE else os.path.abspath(args.bin or built())
        self.known = Known()
        self.accepted = Accepted(args.renew_accepted)

    def upstream(self):
        """Upstream's suites on this kernel."""
        return [upstream.run(self.bin, os.path.join(OUT, "upstream"), self.known, only=self.only)]

    def side_by_side(self):
        """Scenarios beside the Go plugins."""
        return side_by_side.run(self.bin, self.reference, self.judge(), self.only, share=self.share)

    def random(self):
        """Random chains beside the Go plugins."""
        return random_chains.run(self.bin, self.reference, Judge(self.known), self.only, self.seed, self.count)

    def swap(self):
        """Scenarios mixed with the Go plugins."""
        return swap.run(self.bin, self.reference, self.judge(), self.only, share=self.share)

    def runtimes(self):
        """Real runtimes, in short where only a share of everything is wanted."""
        found = runtimes.run(self.bin, self.only, self.share, self.seed) + nomad.run(self.bin, self.only, self.share.step > 1)
        return [(table, problems) for table, problems in found if table.rows or problems]

    def full_kernel(self):
        """What needs a complete kernel, in one."""
        return full_kernel.run(self.bin, self.reference, os.path.join(OUT, "full-kernel"), self.judge(), self.only, self.share,
                               (self.seed, self.count // self.share.step))

    def hosts(self):
        """The same tests on many hosts."""
        return hosts.run(self.bin, self.only, os.path.join(OUT, "hosts"), self.update_docs, self.share)

    def self_test(self):
        """Whether the lab notices broken plugins."""
        return self_test.run(self.bin, self.judge())

    def judge(self):
        """Of what lanes find: what was accepted is kept for this checkout's plugins only."""
        return Judge(self.known, self.accepted if self.bin != self.reference else None)


def prepare(args):
    """Fills the caches that lanes of ARGS use, as far as that takes minutes; the exit status."""
    steps = {"upstream": upstream.prepare,
             "runtimes": lambda: (runtimes.prepare(args.only, share(args)), nomad.prepare(args.only))}
    try:
        for lane in args.lanes or LANES:
            steps.get(lane, lambda: None)()
    except LabError as e:
        print("not prepared: %s" % e)
        return 1
    return 0


LANES = {"self-test": Lab.self_test, "upstream": Lab.upstream, "side-by-side": Lab.side_by_side, "random": Lab.random,
         "swap": Lab.swap, "runtimes": Lab.runtimes, "full-kernel": Lab.full_kernel,
         "hosts": Lab.hosts}

# Lanes whose tables have a page of their own.
ELSEWHERE = {"hosts": ["[hosts.md](hosts.md) has its tables."]}

# Lanes of which the README has more than their row.
IN_README = {"runtimes": short.table}


def share(args):
    """The part that --every leaves of what is to be run."""
    return slice(args.seed % args.every, None, args.every)


def built():
    """A directory with this checkout's plugins: a release build, installed."""
    build = subprocess.run([os.path.join(ROOT, "scripts", "build")], check=True, stdout=subprocess.PIPE, text=True)
    executable = build.stdout.strip()
    directory = os.path.join(OUT, "bin")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    subprocess.run([executable, "install", directory], check=True)
    return directory


def main():
    """The command line."""
    ap = argparse.ArgumentParser(prog="scripts/conformance", description=__doc__.split("\n")[0])
    ap.add_argument("lanes", nargs="*", metavar="LANE", help="default all: " + " ".join(LANES))
    ap.add_argument("--bin", help="directory with the plugins under test ('reference': the Go plugins themselves); "
                                  "default: build and install this checkout's")
    ap.add_argument("--only", action="append", default=[], help="suites or scenarios whose name has this (repeatable)")
    ap.add_argument("--seed", type=int, default=1, metavar="N", help="first seed of the random chains, and where --every begins (default 1)")
    ap.add_argument("--every", type=int, default=1, metavar="N", help="of the scenarios side by side and swapped, of the suites in the full "
                    "kernel, and of the hosts with this machine's kernel, every N-th only")
    ap.add_argument("--count", type=int, default=random_chains.COUNT, metavar="N", help="how many random chains (default %(default)s)")
    ap.add_argument("--allow-skip", action="store_true", help="a lane that cannot run is no failure (not under CI=true)")
    ap.add_argument("--update-docs", action="store_true", help="put the tables of these lanes into docs/conformance.md and README.md")
    ap.add_argument("--renew-accepted", action="store_true", help="write down what is accepted of the scenarios that run as they are now (conformance/accepted)")
    ap.add_argument("--prepare", action="store_true", help="only fill the caches that these lanes use")
    args = ap.parse_args()
    if args.update_docs and not (is_whole(args) or is_long_soak(args) or args.lanes == ["hosts"] and not args.bin):
        ap.error("the documents have whole runs of this checkout: --update-docs goes with no --only, --every, --seed, --count or --bin, "
                 "but for `hosts --only` and for `runtimes --only soak` with CNIBOX_SOAK_SECONDS of %d at least" % LONG)
    unknown = [l for l in args.lanes if l not in LANES]
    if unknown or os.geteuid() != 0:
        ap.error("unknown lane " + unknown[0] if unknown else "must be root (everything runs in namespaces of its own)")
    os.umask(0o022)
    needs.install()
    if args.prepare:
        return prepare(args)
    return Session(args).run()


def is_whole(args):
    """Whether lanes are run with all that they have, against this checkout."""
    return not args.only and args.every == 1 and not args.bin and args.seed == 1 and args.count == random_chains.COUNT


def is_long_soak(args):
    """Whether nothing but a soak is run, and that longer than any whole run does."""
    return args.lanes == ["runtimes"] and args.only == ["soak"] and soak.seconds(is_brief=False) >= LONG and args.every == 1 and not args.bin


class Session:
    """One run of some lanes."""

    def __init__(self, args):
        self.args, self.lab = args, Lab(args)
        self.times = Table("Lanes", ["lane", "verdict", "shortfalls", "seconds"])
        self.sections, self.failed, self.has_run = [], False, False

    def run(self):
        """All lanes; the exit status."""
        for name in self.args.lanes or LANES:
            self._lane(name)
        print(self.times.markdown())
        if self.args.only and not self.has_run:
            print("FAIL nothing was run: no name has " + " or ".join(self.args.only))
            self.failed = True
        self._write()
        return int(self.failed)

    def _lane(self, name):
        start = time.time()
        print("== %s" % name, flush=True)
        try:
            results, skipped = LANES[name](self.lab), None
        except (LabError, OSError, subprocess.SubprocessError) as e:
            results, skipped = [], str(e)
        # Sums stand below nothing, too; a lane that could not run says so.
        self.has_run |= skipped is not None or any(row[0] != "all" for table, _ in results for row in table.rows)
        problems = [p for _, found in results for p in found]
        tables = [table.markdown() for table, _ in results]
        for table in tables:
            print(table, flush=True)
        self.sections += tables
        for problem in problems:
            print("FAIL %s: %s" % (name, problem), flush=True)
        row = self._verdict(name, problems, skipped, time.time() - start)
        if self.args.update_docs and not skipped:
            if is_long_soak(self.args):
                kept.keep_soak(KEPT, soak.seconds(is_brief=False), self.args.seed, tables)
            elif is_whole(self.args):
                kept.keep(KEPT, name, row, ELSEWHERE.get(name, tables))
                if name in IN_README:
                    kept.keep_in_readme(KEPT, name, IN_README[name]([table for table, _ in results]))

    def _verdict(self, name, problems, skipped, seconds):
        """Notes how a lane ended; its row, without the name."""
        if skipped:
            print("SKIP %s: %s" % (name, skipped), flush=True)
            self.failed |= not self.args.allow_skip or os.environ.get("CI") == "true"
        self.failed |= bool(problems)
        verdict = "could not run" if skipped else "red" if problems else "green"
        row = [verdict, len(problems), "%.0f" % seconds]
        self.times.add(name, *row)
        if problems:
            self.sections.append("\n".join(["Shortfalls of %s:" % name, "", "```"] + problems + ["```", ""]))
        return row

    def _write(self):
        """The report: lane times first, then every table."""
        os.makedirs(OUT, exist_ok=True)
        self.lab.accepted.write()
        # Some lines are of use in one lane only, or in the full kernel.
        if is_whole(self.args) and not self.args.lanes:
            for unused in self.lab.known.unused():
                print("FAIL " + unused)
                self.failed = True
        with open(os.path.join(OUT, "report.md"), "w") as f:
            f.write("# Conformance report\n\nWritten by `scripts/conformance`.\n\n")
            f.write("\n".join([self.times.markdown()] + self.sections))
        print("report: target/conformance/report.md")


if __name__ == "__main__":
    sys.exit(main())
