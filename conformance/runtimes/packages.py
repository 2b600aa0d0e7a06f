# SPDX-License-Identifier: Apache-2.0
"""containerd, podman and what they need, from Debian bookworm, unpacked into the cache.

Nothing is installed: podman would bring another set of CNI plugins along and
restart services. The libcni driver is compiled from Debian's Go library.
"""
import glob
import hashlib
import os
import shutil

from ..upstream.debian import Apt, sh, unpack

PACKAGES = """podman containerd runc crun conmon libgpgme11 libassuan0 libsubid4 libyajl2 libdevmapper1.02.1 libseccomp2 libglib2.0-0
golang-github-containers-common golang-github-containers-image busybox-static""".split()
HERE = os.path.dirname(os.path.abspath(__file__))


def ready(cache):
    """The directory the packages are unpacked in; also compiles the driver."""
    root = os.path.join(cache.root, "runtimes-" + hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:8])
    if not os.path.exists(root):
        debs, new = os.path.join(cache.root, "runtimes-debs"), root + ".new"
        for d in (debs, new):
            shutil.rmtree(d, ignore_errors=True)
        os.makedirs(debs)
        apt = Apt(cache.root, "bookworm")
        apt.get("update")
        apt.get("download", *PACKAGES, cwd=debs)
        unpack(glob.glob(debs + "/*.deb"), new)
        os.rename(new, root)
    sh(["go", "build", "-ldflags=-s -w", "-o", driver(cache), os.path.join(HERE, "libcni_driver", "main.go")],
       env=cache.go_env(shimmed=False), cwd="/")
    return root


def driver(cache):
    """The compiled libcni driver."""
    return os.path.join(cache.root, "bin", "libcni-driver")
