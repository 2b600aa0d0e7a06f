# SPDX-License-Identifier: Apache-2.0
"""The runtimes lane: each runtime in a sandbox of its own; a connection through a published port, a clean host.

Also the program that runs inside:  python3 -m conformance.runtimes.lane NAME BINDIR PACKAGES DRIVER
"""
import json
import os
import subprocess
import sys
import time

from .. import sandbox
from ..report import Table
from ..upstream.cache import Cache
from . import containerd, host, libcni, packages, podman

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUNTIMES = ("libcni", "containerd", "podman")
# What the Go plugins leave behind when the namespace is gone before DEL: only
# for running the lab against them.
GO_LEAK = "CNI-"


def run(bindir, only=()):
    """The lane; returns (table, list of shortfalls)."""
    cache = Cache().ready()
    root = packages.ready(cache)
    table, problems = Table("Real runtimes", ["runtime", "published port", "left behind", "seconds"]), []
    for name in RUNTIMES:
        if only and name not in only:
            continue
        start = time.time()
        left, failure = _sandboxed(name, bindir, root, packages.driver(cache))
        if failure:
            problems.append("%s: %s" % (name, failure))
        if os.path.realpath(bindir) == os.path.realpath(cache.reference):
            table.note("%s: left behind by Go: %d" % (name, len(left)))
            left = [l for l in left if GO_LEAK not in l]
        problems += ["%s: left behind: %s" % (name, l) for l in left]
        table.add(name, "no" if failure else "reached", len(left), "%.1f" % (time.time() - start))
    return table, problems


def _sandboxed(name, *args):
    """(what was left behind, why it failed) of one runtime."""
    env = dict(os.environ, PYTHONPATH=ROOT, PYTHONDONTWRITEBYTECODE="1")
    p = subprocess.run(sandbox.command(ROOT, [sys.executable, "-m", "conformance.runtimes.lane", name] + list(args)),
                       env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    if p.returncode:
        return [], p.stderr[-3000:].strip()
    return json.loads(p.stdout.splitlines()[-1]), None


def _inside(name, bindir, root, driver):
    """In the sandbox: one runtime."""
    host.prepare(bindir, root)
    try:
        left = libcni.run(driver) if name == "libcni" else {"containerd": containerd, "podman": podman}[name].run(root)
    except host.RuntimeFailure as e:
        sys.exit(str(e))
    print(json.dumps(left))


if __name__ == "__main__":
    _inside(*sys.argv[1:])
