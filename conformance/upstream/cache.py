# SPDX-License-Identifier: Apache-2.0
"""The cache: upstream's sources and Debian's Go plugins, and what is compiled from them.

About 1 GB in $CNI_UPSTREAM_CACHE (default /var/cache/cni-upstream-suite).
Prepared once; compiled again when the shim changes.
"""
import fcntl
import glob
import os
import shutil

from . import overlay
from .debian import Apt, LabError, sh, unpack
from .toolchain import goroot

DEBIAN_VERSION = "1.9.1+ds1-1"
SOURCE_PACKAGE = "golang-github-containernetworking-plugins"

# What the tests import besides the plugins themselves; the rest follows from
# the packages' dependencies.
GO_DEPS = """
golang-dbus-dev golang-github-alexflint-go-filemutex-dev golang-github-appc-cni-dev
golang-github-buger-jsonparser-dev golang-github-coreos-go-iptables-dev
golang-github-coreos-go-systemd-dev golang-github-insomniacslk-dhcp-dev
golang-github-mattn-go-shellwords-dev golang-github-networkplumbing-go-nft-dev
golang-github-onsi-ginkgo-v2-dev golang-github-opencontainers-selinux-dev
golang-github-pkg-errors-dev golang-github-safchain-ethtool-dev
golang-github-vishvananda-netlink-dev golang-github-vishvananda-netns-dev
golang-golang-x-sys-dev golang-gomega-dev golang-k8s-sigs-knftables-dev
""".split()

HELPERS = {"cnitool": "cnishim/cnitool",
           "echo-server": overlay.PLUGINS + "/pkg/testutils/echo/server",
           "echo-client": overlay.PLUGINS + "/pkg/testutils/echo/client"}


class Cache:
    """Paths below the cache's root, and the steps that fill them."""

    def __init__(self, root=None):
        self.root = os.path.abspath(root or os.environ.get("CNI_UPSTREAM_CACHE", "/var/cache/cni-upstream-suite"))
        self.gopath = os.path.join(self.root, "gopath")          # pristine
        self.overlay = os.path.join(self.root, "gopath-shim")    # plugins and cni, modified
        self.tree = os.path.join(self.overlay, "src", overlay.PLUGINS)
        self.reference = os.path.join(self.root, "reference", "usr", "lib", "cni")
        self.helpers = os.path.join(self.root, "bin", "helpers")

    def suite_binary(self, suite):
        """The compiled test binary of a suite."""
        return os.path.join(self.root, "bin", "shim", suite + ".test")

    def ready(self, suites=()):
        """Downloads and compiles what is missing for SUITES; one process at a time."""
        os.makedirs(self.root, exist_ok=True)
        with open(os.path.join(self.root, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._prepare()
            if suites:
                self._compile(suites)
        return self

    # ------------------------------------------------------------ download

    def _prepare(self):
        done = os.path.join(self.root, "prepared")
        if os.path.exists(done) and open(done).read().strip() == DEBIAN_VERSION:
            return
        print("preparing %s (Debian sources, %s)" % (self.root, DEBIAN_VERSION), flush=True)
        for d in (self.gopath, self.overlay, os.path.join(self.root, "reference")):
            shutil.rmtree(d, ignore_errors=True)
        debs = self._download()
        self._unpack_sources(debs)
        unpack(glob.glob(debs + "/containernetworking-plugins_*.deb"), os.path.join(self.root, "reference"))
        with open(done, "w") as f:
            f.write(DEBIAN_VERSION + "\n")

    def _download(self):
        """Fetches the Go libraries, the Go plugins and upstream's tarball."""
        debs = os.path.join(self.root, "debs")
        shutil.rmtree(debs, ignore_errors=True)
        os.makedirs(debs)
        apt = Apt(self.root)
        apt.get("update")
        libraries = apt.dev_closure(GO_DEPS)
        missing = [p for p in GO_DEPS if p not in libraries]
        if missing:
            raise LabError("not in sid: " + " ".join(missing))
        apt.get("download", *libraries, cwd=debs)
        apt.get("download", "containernetworking-plugins=" + DEBIAN_VERSION, cwd=debs)
        # The -dev package has no plugins/main and plugins/meta; the source
        # package's orig tarball is the whole upstream tree without vendor/.
        apt.get("source", "--download-only", "--tar-only", SOURCE_PACKAGE + "=" + DEBIAN_VERSION, cwd=debs)
        return debs

    def _unpack_sources(self, debs):
        tmp = os.path.join(self.root, "unpack")
        shutil.rmtree(tmp, ignore_errors=True)
        unpack([d for d in glob.glob(debs + "/*.deb")
                if not os.path.basename(d).startswith("containernetworking-plugins")], tmp)
        os.makedirs(self.gopath)
        os.rename(tmp + "/usr/share/gocode/src", self.gopath + "/src")
        shutil.rmtree(tmp)
        tree = os.path.join(self.gopath, "src", overlay.PLUGINS)
        shutil.rmtree(tree, ignore_errors=True)
        os.makedirs(tree)
        tars = glob.glob(debs + "/*.orig.tar.*")
        if len(tars) != 1:
            raise LabError("expected one orig tarball in %s, have %s" % (debs, tars))
        sh(["tar", "-xf", tars[0], "-C", tree, "--strip-components=1"])

    # ------------------------------------------------------------ compile

    def go_env(self, shimmed=True):
        """The environment of Go runs: this cache's sources only, nothing from the network."""
        root = goroot(self.root)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GO", "CNI_"))}
        env.update(PATH=root + "/bin:" + env.get("PATH", ""), GOROOT=root, GOTOOLCHAIN="local",
                   GO111MODULE="off", GOFLAGS="", CGO_ENABLED="0", GOENV="off", GOPROXY="off",
                   GOPATH=(self.overlay + ":" if shimmed else "") + self.gopath,
                   GOCACHE=os.path.join(self.root, "gocache"))
        return env

    def _compile(self, suites):
        done = os.path.join(self.root, "overlay-stamp")
        if not os.path.exists(done) or open(done).read() != overlay.stamp():
            overlay.make(self.gopath, self.overlay)
            for d in (os.path.join(self.root, "bin"), os.path.join(self.root, "control")):
                shutil.rmtree(d, ignore_errors=True)
            with open(done, "w") as f:
                f.write(overlay.stamp())
        jobs = [(os.path.join(self.helpers, h), ["build", "-ldflags=-s -w"], p, self.tree) for h, p in HELPERS.items()]
        jobs += [(self.suite_binary(s), ["test", "-c", "-vet=off", "-ldflags=-s -w"], ".",
                  os.path.join(self.tree, overlay.SUITES[s])) for s in suites]
        for out, args, package, cwd in jobs:
            if not os.path.exists(out):
                print("compiling " + os.path.basename(out), flush=True)
                os.makedirs(os.path.dirname(out), exist_ok=True)
                sh(["go"] + args + ["-o", out, package], env=self.go_env(), cwd=cwd)
