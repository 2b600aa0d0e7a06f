# SPDX-License-Identifier: Apache-2.0
"""The hosts lane: the same few tests on many hosts, and one of them with the Go plugins as well.

A host is red when something does not work there that the catalogue does not expect to be lacking, when the plugin that
refuses says anything but what is lacking, and when what is called lacking works.
"""
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

from .. import needs
from ..report import Table
from ..upstream.cache import Cache
from ..upstream.debian import LabError
from . import catalogue, guests, page

WORKS, LACKS, FAILS, PARTLY = "works", "-", "fails", "in part"
# Tests say so of kinds of links that the kernel was built without; nothing that plugins could say.
KIND = re.compile(r"the kernel has no ([^;]+); ")


def run(bindir, only, out, update_docs, share=slice(None, None, 1)):
    """The lane; a list of (table, shortfalls). OUT keeps what every test said; docs/hosts.md gets each host when it is done.

    A SHARE is of the hosts that have this machine's kernel: others are booted, some under emulation.
    """
    needs.install({"newuidmap": "uidmap", "setpriv": "util-linux"})
    cache = Cache().ready()
    built = functools.lru_cache(None)(lambda architecture: guests.Built(architecture, cache, bindir))
    wanted = [h for h in catalogue.HOSTS if not only or any(o in h.name for o in only)]
    if share.step > 1:
        wanted = [h for h in wanted if h.is_unknown_kernel()][share]
    tables = {name: Table(name, page.columns(name)) for name in dict.fromkeys(h.table for h in wanted)}
    stamp = page.stamp()
    words, problems = Table("What is said there", page.WORDS), []
    for host in wanted:
        start = time.time()
        print("   %s" % host.name, flush=True)
        report = Report(host, os.path.join(out, re.sub(r"[^a-z0-9]+", "-", host.name.lower())))
        try:
            report.make(built(catalogue.architecture(host)))
        except LabError as e:
            problems.append(str(e))
            continue
        problems += report.problems()
        tables[host.table].rows.append(report.row())
        words.rows += report.words()
        print("   %s: %.0f s" % (", ".join("%s: %s" % (c.title, report.cell(c)) for c in host.columns), time.time() - start), flush=True)
        if update_docs:
            page.keep(os.path.join(out, "docs"), host, report.row() + stamp, report.words())
    return [(table, []) for table in tables.values()] + [(words, problems)]


class Report:
    """What came of one host."""

    def __init__(self, host, folder):
        self.host, self.folder = host, folder
        self.kernel, self.found = "?", {}

    def make(self, built):
        """Runs the tests, and reads what they say."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        # Outside of the checkout, since another user must be able to write there.
        with tempfile.TemporaryDirectory(prefix="hosts.") as work:
            os.chmod(work, 0o777)
            self._boot(built, work)
            for name in os.listdir(work):
                if name.endswith((".log", ".skips", ".status")):
                    shutil.copy(os.path.join(work, name), self.folder)
            self.kernel = _read(os.path.join(work, "kernel")).strip() or "?"
        for number, column in enumerate(self.host.columns):
            self.found[column] = outcome(os.path.join(self.folder, str(number)))

    def _boot(self, built, work):
        host = self.host
        slow = host.how == "qemu"
        tools = os.path.join(work, "tools")
        os.mkdir(tools)
        for name, program in host.tools.items():
            os.symlink(program, os.path.join(tools, name))
        path, plugins_path = catalogue.path_of(tools, host)
        with open(os.path.join(work, "outside"), "w", encoding="utf-8") as f:
            f.write(host.outside)
        with open(os.path.join(work, "cells"), "w", encoding="utf-8") as f:
            for number, column in enumerate(host.columns):
                plugins = built.reference if column.is_go else built.bin
                # The Go plugins start some fifty processes for each attachment.
                seconds = 150 if not slow else 1500 if column.is_go else 900
                print(number, seconds, plugins, built.programs[column.program], column.test, file=f)
        shared = [work] + built.shared() + ([os.path.dirname(p) for p in built.programs.values()] if built.target else [])
        env = dict({k: v for k, v in os.environ.items() if not k.startswith(("CNI", "REQUIRE_"))}, PATH=path, CNIBOX_PATH=plugins_path,
                   CNIBOX_HOST=host.prepare, FULLKERNEL_RW=":".join(dict.fromkeys(shared)), FULLKERNEL_TIMEOUT="5400" if slow else "1200", **host.settings)
        done = subprocess.run(guests.command(host) + [guests.RUN, work], cwd=work, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise LabError("%s: exit %d\n%s" % (host.name, done.returncode, done.stdout[-2000:]))

    def row(self):
        """The host's row: a cell for each of its table's columns."""
        return [self.host.name, self.kernel] + [self.cell(column) for column in self.host.columns]

    def cell(self, column):
        """What the page says of a column."""
        cell, said = self.found.get(column, ("not run", ""))
        expected = self.host.lacks.get(column)
        return LACKS if expected and not column.is_go and cell == FAILS and expected in said else cell

    def words(self):
        """What was said in place of working."""
        return [[self.host.name, column.title, said] for column, (_, said) in self.found.items() if said]

    def problems(self):
        """Where the plugins under test did otherwise than the catalogue expects."""
        out = []
        for column, (cell, said) in self.found.items():
            if column.is_go:
                continue
            expected = self.host.lacks.get(column)
            # What this machine's own kernel was built with is not the catalogue's.
            if expected is None and self.host.is_unknown_kernel() and cell in (LACKS, PARTLY) and KIND.search(said + "; "):
                continue
            is_as_expected = cell == WORKS if expected is None else cell != WORKS and expected in said
            if not is_as_expected:
                out.append("%s: %s: %s (expected: %s)" % (self.host.name, column.title, said or cell, expected or WORKS))
        return out


def outcome(prefix):
    """(cell, words) of a test whose log, status and skips begin with PREFIX."""
    status, log = _read(prefix + ".status").strip(), _read(prefix + ".log")
    skipped = [line.split(": ", 1)[1] for line in _read(prefix + ".skips").splitlines()]
    if status != "0":
        said = failure(log) or ("no answer in time" if status in ("124", "137") else "exit %s" % (status or "?"))
        return (LACKS if "the kernel has no" in said else FAILS), said
    if "test result: ok. 0 passed" in log:
        return FAILS, "the test is not there"
    kinds = list(dict.fromkeys(KIND.findall("\n".join(skipped))))
    if len(kinds) < len(set(skipped)):
        return FAILS, "; ".join(skipped)
    # One test of one network is left out whole.
    return (LACKS if catalogue.LAN.test in log else PARTLY, "the kernel has no " + ", ".join(kinds)) if kinds else (WORKS, "")


def failure(log):
    """The words of the first panic; of a plugin's error object its message."""
    found = re.search(r"panicked at [^\n]*:\n(.*?)(?=\nnote: run with|\n\nfailures:|\nstack backtrace|\nthread '|\Z)", log, re.S)
    if not found:
        return ""
    said = found.group(1).strip()
    verb, _, document = said.partition(": {")
    try:
        error, _ = json.JSONDecoder().raw_decode("{" + document)
        said = "%s: %s" % (verb, error["msg"])
    except (ValueError, KeyError):
        pass
    return " ".join(said.split())[:400]


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except FileNotFoundError:
        return ""
