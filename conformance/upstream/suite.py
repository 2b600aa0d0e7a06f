# SPDX-License-Identifier: Apache-2.0
"""Runs one compiled upstream suite in a sandbox and writes OUT/SUITE.json.

Also a program, so that the same code runs here and in the full kernel:
    python3 -m conformance.upstream.suite SUITE BINDIR OUTDIR
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from .. import sandbox
from . import overlay, results
from .cache import Cache

TIMEOUT = 900  # seconds for one suite; ginkgo stops 20 s before and reports what ran


def run(cache, suite, bindir, outdir):
    """Runs SUITE against BINDIR; the result is the JSON that is written."""
    os.makedirs(outdir, exist_ok=True)
    report, logfile = os.path.join(outdir, suite + ".jsonl"), os.path.join(outdir, suite + ".log")
    for f in (report, logfile):
        if os.path.exists(f):
            os.unlink(f)
    tmp = tempfile.mkdtemp(prefix="cu-", dir="/tmp")
    os.chmod(tmp, 0o755)
    start = time.time()
    status, timed_out = _execute(cache, suite, _environment(cache, bindir, tmp, report), logfile)
    shutil.rmtree(tmp, ignore_errors=True)
    if re.search(r"(?m)Suite Timeout Elapsed", open(logfile, errors="replace").read()):
        timed_out = True
    res = results.read(report)
    res.update(suite=suite, exit=status, timed_out=timed_out, seconds=round(time.time() - start, 1))
    if not res["specs"]:
        res["error"] = "no spec was reported: " + open(logfile, errors="replace").read()[-400:]
    results.classify(res)
    with open(os.path.join(outdir, suite + ".json"), "w") as f:
        json.dump(res, f, indent=1)
    return res


def _environment(cache, bindir, tmp, report):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CNI_", "GINKGO"))}
    path = bindir + ":" + cache.helpers + ":" + os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    env.update(PATH=path, TMPDIR=tmp, CNI_TEST_BIN=bindir, CNI_SHIM_REPORT=report, CNI_SHIM_HELPERS=cache.helpers)
    return env


def _execute(cache, suite, env, logfile):
    """Starts the suite and waits; returns (exit status, whether it was cut off)."""
    cmd = sandbox.command(os.path.join(cache.tree, overlay.SUITES[suite]), [
        cache.suite_binary(suite), "-test.timeout=0", "-ginkgo.timeout=%ds" % (TIMEOUT - 20),
        "-ginkgo.grace-period=5s", "-ginkgo.no-color", "-ginkgo.seed=1"])
    with open(logfile, "w") as log:
        p = subprocess.Popen(cmd, cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                             start_new_session=True)
        try:
            return p.wait(timeout=TIMEOUT), False
        except subprocess.TimeoutExpired:
            return -9, True
        finally:
            _reap(p)


def _reap(p):
    """Ends our own child's process group; the namespace's PID 1 takes the rest with it."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(p.pid, sig)
        except ProcessLookupError:
            break
        try:
            p.wait(timeout=3)
        except subprocess.TimeoutExpired:
            pass
    p.wait()


if __name__ == "__main__":
    run(Cache(), sys.argv[1], os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3]))
