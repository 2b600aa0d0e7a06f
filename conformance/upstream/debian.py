# SPDX-License-Identifier: Apache-2.0
"""Debian packages without installing them: a private apt that only downloads.

Upstream's sources, their Go dependencies, the control's binaries and the
runtimes all come from here, so nothing of the machine's own package
database changes.
"""
import glob
import os
import re
import subprocess

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class LabError(Exception):
    """The lab cannot do what was asked; the text says why."""


def sh(cmd, **kw):
    """Runs a command and returns its output; raises LabError with the output's tail."""
    p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)
    if p.returncode:
        raise LabError("%s: exit %d\n%s" % (" ".join(cmd[:6]), p.returncode, p.stdout[-6000:]))
    return p.stdout


def mirror():
    """The Debian mirror that this machine's own apt sources name."""
    files = ["/etc/apt/sources.list"] + sorted(glob.glob("/etc/apt/sources.list.d/*"))
    text = "".join(open(f).read() for f in files if os.path.isfile(f))
    for uri in re.findall(r"https?://[^\s\]]+/debian/?(?=\s|$)", text, re.M):
        return uri.rstrip("/")
    raise LabError("no Debian mirror in /etc/apt: the lab takes upstream's sources from Debian's packages")


class Apt:
    """apt for one suite with a configuration, lists and status of its own."""

    def __init__(self, root, suite="sid"):
        self.dir = d = os.path.join(root, "apt" if suite == "sid" else "apt-" + suite)
        for s in ("lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(d, s), exist_ok=True)
        source = os.path.join(d, "sources.list")
        signed = "[signed-by=%s] " % KEYRING if os.path.exists(KEYRING) else ""
        with open(source, "w") as f:
            for kind in ("deb", "deb-src"):
                f.write("%s %s%s %s main\n" % (kind, signed, mirror(), suite))
        open(os.path.join(d, "status"), "a").close()
        self.opts = ["-q"] + ["-o" + o for o in (
            "Dir::Etc::sourcelist=" + source, "Dir::Etc::sourceparts=/dev/null",
            "Dir::Etc::preferencesparts=/dev/null", "Dir::State::Lists=%s/lists" % d,
            "Dir::Cache=%s/cache" % d, "Dir::State::status=%s/status" % d,
            "Acquire::Languages=none", "APT::Sandbox::User=root", "Acquire::Retries=3")]

    def get(self, *args, **kw):
        """apt-get with the private configuration."""
        return sh(["apt-get"] + self.opts + list(args), **kw)

    def cache(self, *args):
        """apt-cache with the private configuration; no error for what is unknown."""
        return subprocess.run(["apt-cache"] + self.opts + list(args), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout

    def dev_closure(self, roots):
        """The golang-*-dev packages that ROOTS need, themselves included."""
        out = self.cache("depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts",
                         "--no-breaks", "--no-replaces", "--no-enhances", *roots)
        return sorted({l for l in out.split("\n") if re.fullmatch(r"golang-[a-z0-9.+-]+-dev", l)})


def unpack(debs, dest):
    """Unpacks package files into DEST, without their maintainer scripts."""
    for deb in debs:
        sh(["dpkg", "-x", deb, dest])
