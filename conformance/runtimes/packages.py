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
golang-github-containers-common golang-github-containers-image busybox-static buildah""".split()
# firewalld with an interpreter of its own: its modules are compiled for this one.
FIREWALLD = """firewalld python3-firewall python3-nftables python3-gi python3-dbus python3-cap-ng libcap-ng0 libgirepository-1.0-1
gir1.2-glib-2.0 libnftables1 libglib2.0-0 libffi8 ipset libipset13 libjansson4 libdbus-1-3 python3.11-minimal libpython3.11-minimal
libpython3.11-stdlib""".split()
ROOTLESS = "rootlesskit slirp4netns uidmap libslirp0 libsubid4 libglib2.0-0".split()
HERE = os.path.dirname(os.path.abspath(__file__))


def ready(cache):
    """The directory the packages are unpacked in; also compiles the driver."""
    root = unpacked(cache, "bookworm", PACKAGES)
    os.makedirs(os.path.dirname(driver(cache)), exist_ok=True)
    sh(["go", "build", "-ldflags=-s -w", "-o", driver(cache) + ".new", os.path.join(HERE, "libcni_driver", "main.go")],
       env=cache.go_env(shimmed=False), cwd="/")
    os.rename(driver(cache) + ".new", driver(cache))  # somebody may be using it
    return root


def driver(cache):
    """The compiled libcni driver; not in `bin`, which is emptied when upstream's suites are compiled anew."""
    return os.path.join(cache.root, "programs", "libcni-driver")


def libcni_version(cache):
    """The version of the library that the driver is compiled with, as its package says."""
    name = os.path.basename(glob.glob(cache.root + "/debs/golang-github-appc-cni-dev_*.deb")[0])
    return name.split("_")[1].split("-")[0]


def unpacked(cache, suite, names):
    """The directory that holds the named packages of a suite of Debian's."""
    root = os.path.join(cache.root, "runtimes-" + hashlib.sha256(" ".join([suite] + names).encode()).hexdigest()[:8])
    if not os.path.exists(root):
        debs, new = root + ".debs", root + ".new"
        for d in (debs, new):
            shutil.rmtree(d, ignore_errors=True)
        os.makedirs(debs)
        apt = Apt(cache.root, suite)
        apt.get("update")
        apt.get("download", *names, cwd=debs)
        unpack(glob.glob(debs + "/*.deb"), new)
        shutil.rmtree(debs)
        os.rename(new, root)
    return root
