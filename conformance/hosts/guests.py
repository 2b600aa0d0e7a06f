# SPDX-License-Identifier: Apache-2.0
"""How to get to a host of the catalogue: the command that runs something there."""
import os
import subprocess

from ..upstream.cache import DEBIAN_VERSION
from ..upstream.debian import Apt, LabError, unpack
from . import catalogue

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SANDBOXED = os.path.join(ROOT, "scripts", "sandboxed")
FULL_KERNEL = os.path.join(ROOT, "scripts", "full-kernel")
RUN = os.path.join(ROOT, "conformance", "hosts", "run.sh")
ORDINARY = os.path.join(ROOT, "conformance", "hosts", "ordinary.sh")
TARGETS = {"amd64": None, "arm64": "aarch64-unknown-linux-musl"}


def command(host):
    """The words in front of a command line that is to be run on HOST."""
    if host.how in ("uml", "qemu"):
        return [FULL_KERNEL]
    if host.how == "here":
        return [SANDBOXED]
    return [ORDINARY] + (["--nested"] if host.how == "nested" else [])


class Built:
    """What is run on one architecture: test programs, the plugins under test, the Go plugins."""

    def __init__(self, architecture, cache, bindir):
        self.target = TARGETS[architecture]
        self.bin = bindir if self.target is None else self._plugins(bindir)
        self.reference = cache.reference if self.target is None else _reference(cache, architecture)
        self.programs = self._programs()

    def shared(self):
        """The folders that a guest without this machine's / needs."""
        return [] if self.target is None else [os.path.dirname(self.bin), self.reference, os.path.dirname(RUN)]

    def _plugins(self, like):
        """A folder with the plugins that are in LIKE, built for another architecture."""
        executable = _said([os.path.join(ROOT, "scripts", "build"), "--target", self.target]).strip()
        folder = os.path.join(os.path.dirname(os.path.dirname(executable)), "plugins")
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(like):
            if os.path.islink(os.path.join(like, name)) and not os.path.islink(os.path.join(folder, name)):
                os.symlink(executable, os.path.join(folder, name))
        return folder

    def _programs(self):
        """The path of each test program of the catalogue."""
        env = dict(os.environ)
        names = sorted({column.program for columns in catalogue.TABLES.values() for column in columns})
        target = []
        if self.target:
            linker = _said([os.path.join(ROOT, "scripts", "linker"), self.target]).strip()
            env["CARGO_TARGET_%s_LINKER" % self.target.upper().replace("-", "_")] = linker
            target = ["--target", self.target]
        folders = {name.split("/")[0] for name in names}
        packages = [word for f in sorted(folders) for word in ("-p", f if f == "cnibox" else "cnibox-" + f)]
        messages = _said(["cargo", "test"] + packages + ["--tests", "--no-run", "--quiet", "--message-format=json"] + target, env=env)
        paths = _said([os.path.join(ROOT, "scripts", "test-executables")] + names, input=messages)
        return dict(zip(names, paths.split()))


def _reference(cache, architecture):
    """Debian's Go plugins of another architecture, unpacked."""
    folder = os.path.join(cache.root, "reference-" + architecture)
    plugins = os.path.join(folder, "usr", "lib", "cni")
    if not os.path.isdir(plugins):
        debs = os.path.join(cache.root, "debs-" + architecture)
        os.makedirs(debs, exist_ok=True)
        apt = Apt(os.path.join(cache.root, architecture))
        apt.opts += ["-oAPT::Architecture=" + architecture, "-oAPT::Architectures=" + architecture]
        apt.get("update")
        apt.get("download", "containernetworking-plugins=" + DEBIAN_VERSION, cwd=debs)
        unpack([os.path.join(debs, name) for name in os.listdir(debs)], folder)
    return plugins


def _said(command, **kw):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, **kw)
    if done.returncode:
        raise LabError("%s: exit %d" % (" ".join(command[:6]), done.returncode))
    return done.stdout
