# SPDX-License-Identifier: Apache-2.0
"""A Go toolchain new enough for upstream: the machine's, or Debian sid's unpacked in the cache."""
import glob
import os
import re
import shutil
import subprocess

from .debian import Apt, LabError, unpack

GO_MINOR = 25  # upstream's go.mod asks for go 1.25


def goroot(cache_root):
    """The GOROOT to use; downloads one into CACHE_ROOT when the machine has none."""
    found = next((r for r in _candidates() if _suitable(r)), None)
    return found or _from_sid(cache_root)


def _candidates():
    """Directories that may be a GOROOT, most specific first."""
    try:
        p = subprocess.run(["go", "env", "GOROOT"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                           text=True, env=dict(os.environ, GOTOOLCHAIN="local", GO111MODULE="off"))
        yield p.stdout.strip()
    except OSError:
        pass
    yield from (os.environ.get("GOROOT", ""), "/usr/lib/go", "/usr/local/go")


def _suitable(root):
    try:
        m = re.match(r"go1\.(\d+)", open(root + "/VERSION").read())
    except OSError:
        return False
    return bool(m) and int(m.group(1)) >= GO_MINOR and os.access(root + "/bin/go", os.X_OK)


def _from_sid(cache_root):
    root = os.path.join(cache_root, "go")
    if os.access(root + "/bin/go", os.X_OK):
        return root
    apt = Apt(cache_root)
    apt.get("update")
    names = apt.cache("pkgnames", "golang-1.").split()
    minors = sorted(int(m.group(1)) for m in (re.fullmatch(r"golang-1\.(\d+)-go", n) for n in names) if m)
    if not minors:
        raise LabError("no golang-1.x-go in sid")
    debs, tmp = os.path.join(cache_root, "go-debs"), os.path.join(cache_root, "go-unpack")
    os.makedirs(debs, exist_ok=True)
    apt.get("download", "golang-1.%d-go" % minors[-1], "golang-1.%d-src" % minors[-1], cwd=debs)
    shutil.rmtree(tmp, ignore_errors=True)
    unpack(glob.glob(debs + "/golang-1.%d-*.deb" % minors[-1]), tmp)
    _merge(tmp, "go-1.%d" % minors[-1], root)
    shutil.rmtree(tmp)
    return root


def _merge(tmp, name, root):
    """One GOROOT of Debian's two: usr/lib holds bin and pkg/tool, usr/share the sources."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(tmp + "/usr/share/" + name, root, symlinks=True)
    lib = tmp + "/usr/lib/" + name
    for d, _, files in os.walk(lib):
        to = os.path.join(root, os.path.relpath(d, lib))
        for f in files:
            if not os.path.islink(os.path.join(d, f)):
                os.makedirs(to, exist_ok=True)
                shutil.copy2(os.path.join(d, f), to)
