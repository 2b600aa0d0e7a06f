# SPDX-License-Identifier: Apache-2.0
"""The runtimes lane: each runtime in a sandbox of its own, with the plugins under test and with the Go plugins.

A runtime fails when it did not do what it should, warned of what it does not warn of with the Go plugins, or left
anything behind.

Also the program that runs inside:  python3 -m conformance.runtimes.lane NAME SETTINGS
"""
import collections
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time

from .. import sandbox
from ..report import Table
from ..upstream.cache import Cache
from . import builds, catalogue, figures, host, remains

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUT = os.path.join(ROOT, "target", "conformance", "runtimes")
COLUMNS = ["runtime", "version", "what was run", "verdict", "left behind", "Go: verdict", "Go: left behind", "seconds"]
SIDES = "plugins under test", "Go plugins"
TIMEOUT = 4500


def run(bindir, only=(), share=slice(None), seed=0):
    """The lane; returns pairs of a table and a list of shortfalls: what was run, and how long it took. All of it is in short
    where only a share of the runtimes is wanted."""
    brief = share.step not in (None, 1)
    cache = Cache().ready()
    table, problems, times = Table("Real runtimes", COLUMNS), [], figures.table()
    for runtime in catalogue.chosen(only, share):
        start = time.time()
        with alone(cache):
            settings = dict(runtime.prepare(cache), brief=brief, seed=seed)
            go = builds.go_plugins(cache)
        control = _sandboxed(runtime, dict(settings, bin=go)) if runtime.has_control else None
        report = _sandboxed(runtime, dict(settings, bin=bindir))
        _note(runtime.name, report, control)
        problems += ["%s: %s" % (runtime.name, p) for p in _shortfalls(runtime, report, control)]
        table.add(*_row(runtime, report, control), "%.0f" % (time.time() - start))
        for note in _notes(runtime, report, control):
            table.note("%s: %s" % (runtime.name, note))
        if report["times"] and runtime.is_timed:
            rounds = [(report, control)] + ([] if brief else [_again(runtime, settings, bindir, go)])
            for both in rounds[1:]:
                problems += ["%s: figures with %s: %s" % (runtime.name, side, r["failure"]) for side, r in zip(SIDES, both) if r["failure"]]
            figures.add(times, runtime.name, *([r["times"] for r in side] for side in zip(*rounds)))
    return [(table, problems)] + ([(times, [])] if times.rows else [])


def prepare(only=(), share=slice(None)):
    """Fills the cache with what `run` needs for the same."""
    cache = Cache().ready()
    for runtime in catalogue.chosen(only, share):
        with alone(cache):
            runtime.prepare(cache)
    with alone(cache):
        builds.go_plugins(cache)


def _again(runtime, settings, bindir, go):
    """The figures once more, in the other order: the reports with the plugins under test and with the Go plugins."""
    return tuple(_sandboxed(runtime, dict(settings, bin=side, timed=True)) for side in (bindir, go))


def _row(runtime, report, control):
    """A runtime's row, without how long it took."""
    verdict = "no" if _shortfalls(runtime, report, control) else "as it should"
    of_control = [_verdict(control), len(control["left"])] if control else ["in turns", "-"]
    return [runtime.name, report.get("version", "?"), runtime.what, verdict, len(_left(runtime, report, control)[0])] + of_control


def _notes(runtime, report, control):
    """What is said below the table."""
    excused = _left(runtime, report, control)[1]
    return report["notes"] + (["%d lines stay as with the Go plugins (%s)" % (len(excused), ", ".join(runtime.stays))] if excused else [])


def _note(name, report, control):
    """Keeps both reports whole, for who wants to know more than the table says."""
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, name + ".json"), "w", encoding="utf-8") as f:
        json.dump(dict(zip(SIDES, (report, control))), f, indent=1)


def _left(runtime, report, control):
    """What a run left behind: (what it should not have, what stays with the Go plugins as well, line for line)."""
    stays = collections.Counter(remains.plain(l) for l in (control or report)["left"] if l.startswith(runtime.stays))
    left, excused = [], []
    for line in report["left"]:
        is_excused = stays[remains.plain(line)] > 0
        stays[remains.plain(line)] -= is_excused
        (excused if is_excused else left).append(line)
    return left, excused


def _shortfalls(runtime, report, control):
    """What is wrong with a run beside the control's."""
    known = control["warnings"] if control else []
    out = [report["failure"]] if report["failure"] else []
    out += ["left behind: " + l for l in _left(runtime, report, control)[0]]
    return out + ["warning: " + w for w in report["warnings"] if w not in known]


def _verdict(report):
    """In a few words, whether a run went well by itself."""
    if report["failed"]:
        return "fails: " + ", ".join(report["failed"])
    return "fails" if report["failure"] else "as it should"


@contextlib.contextmanager
def alone(cache):
    """Nobody else fills the cache meanwhile."""
    with open(os.path.join(cache.root, "runtimes-lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sandboxed(runtime, settings):
    """The report of one runtime."""
    env = dict(os.environ, PYTHONPATH=ROOT, PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, "-m", "conformance.runtimes.lane", runtime.name, json.dumps(settings)]
    report = {"left": [], "warnings": [], "times": {}, "failed": [], "notes": [], "failure": None}
    try:
        p = subprocess.run(sandbox.command(ROOT, command), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return dict(report, failure="not done after %d seconds" % TIMEOUT)
    if p.returncode:
        return dict(report, failure=p.stderr[-3000:].strip())
    return dict(report, **json.loads(p.stdout.splitlines()[-1]))


def _inside(name, settings):
    """In the sandbox: one runtime. This process is the namespace's first, so it buries what runtimes leave to it."""
    child = os.fork()
    while child:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xff)
    settings = json.loads(settings)
    host.prepare(settings["bin"], settings["packages"], *settings.get("libraries", ()))
    try:
        report = catalogue.named(name).run(settings)
    except (host.RuntimeFailure, subprocess.TimeoutExpired) as e:
        sys.exit(str(e))
    print(json.dumps(report))


if __name__ == "__main__":
    _inside(*sys.argv[1:])
