# SPDX-License-Identifier: Apache-2.0
"""The upstream lane: every exercised spec that the Go plugins pass must pass.

The control is the same run with Debian's Go plugins on the same kernel, kept
in the cache. Suites run two at a time, each in a sandbox (or a full kernel) of
its own.
"""
import concurrent.futures
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys

from ..report import Table
from . import overlay
from .cache import Cache
from .debian import LabError
from .results import anomalies, shortfalls

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARALLEL = 2


class Runner:
    """Where the suites run: this kernel, or the full one."""

    def __init__(self, cache, full_kernel=False):
        self.cache = cache
        self.prefix = [os.path.join(ROOT, "scripts", "full-kernel")] if full_kernel else []

    def suites(self, names, bindir, outdir):
        """Results of NAMES by suite, run against BINDIR."""
        os.makedirs(outdir, exist_ok=True)
        # The longest first, so that they do not end up alone.
        order = sorted(names, key=lambda s: s not in ("bridge", "ptp", "portmap", "dhcp", "integration"))
        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            return dict(zip(order, pool.map(lambda s: self._one(s, bindir, outdir), order)))

    def _one(self, suite, bindir, outdir):
        env = dict(os.environ, FULLKERNEL_RW=outdir, PYTHONPATH=ROOT, PYTHONDONTWRITEBYTECODE="1",
                   CNI_UPSTREAM_CACHE=self.cache.root)
        out = os.path.join(outdir, suite + ".json")
        if os.path.exists(out):
            os.unlink(out)
        p = subprocess.run(self.prefix + [sys.executable, "-m", "conformance.upstream.suite", suite, bindir, outdir],
                           cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if not os.path.exists(out):
            raise LabError("%s: no result (exit %d)\n%s" % (suite, p.returncode, p.stdout[-2000:]))
        return json.load(open(out))

    def control(self, names):
        """Results of Debian's Go plugins, from the cache where this kernel's are there."""
        where = os.path.join(self.cache.root, "control", self._kernel())
        missing = [s for s in names if not os.path.exists(os.path.join(where, s + ".json"))]
        if missing:
            fresh = where + ".new"
            self.suites(missing, self.cache.reference, fresh)
            os.makedirs(where, exist_ok=True)
            for s in missing:
                os.replace(os.path.join(fresh, s + ".json"), os.path.join(where, s + ".json"))
            shutil.rmtree(fresh, ignore_errors=True)
        return {s: json.load(open(os.path.join(where, s + ".json"))) for s in names}

    def _kernel(self):
        """A name for what a control run depends on besides the suites: kernel, tools, shim."""
        kernel = platform.release() + platform.version()
        if self.prefix:
            kernel = subprocess.run(self.prefix + ["uname", "-rv"], stdout=subprocess.PIPE, text=True).stdout
        tools = "".join(subprocess.run([t, "--version"], stdout=subprocess.PIPE, text=True).stdout
                        for t in ("iptables", "nft"))
        return hashlib.sha256((kernel + tools + overlay.stamp()).encode()).hexdigest()[:16]


def run(bindir, workdir, known, full_kernel=False, only=(), share=slice(None)):
    """The lane; returns (table, list of shortfalls). Of the suites SHARE is taken."""
    problems = ["%s: no such plugin in %s" % (s, bindir) for s in overlay.SUITES
                if s != "integration" and not os.access(os.path.join(bindir, s), os.X_OK)]
    suites = [s for s in overlay.SUITES if not only or s in only][share]
    cache = Cache().ready(suites)
    runner = Runner(cache, full_kernel)
    control = runner.control(suites)
    results = runner.suites(suites, bindir, os.path.join(workdir, "out"))
    title = "Upstream's suites, full kernel" if full_kernel else "Upstream's suites, this kernel"
    table = Table(title, ["suite", "exercised", "passed", "passed by the control", "not exercised", "seconds"])
    idle = []
    for suite in suites:
        problems += _judge(suite, results[suite], control[suite], known)
        if not control[suite]["counts"]["passed"]:
            idle.append(suite)
        table.add(*_row(suite, results[suite], control[suite]))
    if idle and full_kernel:
        problems += ["%s: the control exercised nothing; this run proves nothing" % s for s in idle]
    elif idle:
        table.note("This kernel lacks what these need; they count in the full kernel only: " + ", ".join(idle))
    return table, problems


def prepare():
    """Compiles the suites, so that `run` need not; between two of them the cache is for others."""
    for suite in overlay.SUITES:
        Cache().ready([suite])


def _judge(suite, res, control, known):
    """Shortfalls of one suite that known-differences.md does not explain."""
    out = []
    if res.get("error") or res["timed_out"]:
        out.append("%s: %s" % (suite, res.get("error") or "timed out"))
    for name, why in shortfalls(res, control) + anomalies(res, control):
        if known.line(suite, name) is None:
            out.append("%s: %s [%s]" % (suite, name, why))
    return out


def _row(suite, res, control):
    c = res["counts"]
    rest = " ".join("%s=%d" % (k, c[k]) for k in ("unit", "blocked", "skipped", "excluded", "unreported") if c[k])
    return suite, c["exercised"], c["passed"], control["counts"]["passed"], rest or "-", res["seconds"]
