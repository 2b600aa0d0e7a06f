# SPDX-License-Identifier: Apache-2.0
"""Builders: every RUN is a container with a network of its own, which speaks to a machine outside.

BuildKit calls the plugins by the names that its releases bring them with (buildkit-cni-bridge and so on), one after the
other, many at once, and keeps namespaces in a pool; it is killed in the middle of a RUN. buildah uses Podman's network.
"""
import concurrent.futures
import glob
import os
import re
import signal
import socket
import subprocess
import threading
import time

from ..side_by_side import netns
from . import builds, host, podman, remains
from .calls import Phases

DIR = "/run/lab/build"
# What all containers share; and the bridge, which BuildKit leaves alone once it found it there at its start.
SHARED = re.compile(r"CNI-(FORWARD|ADMIN|ISOLATION)|^interface buildkit0$|tables-save \*\w+ :[A-Z]+ (ACCEPT|-)$")
OF_ONE = re.compile(r"\d/32\b|[0-9a-f:]/128\b")  # a rule for one address is nobody's but its container's
NAMES = ("bridge", "loopback", "host-local", "firewall")
SAY = "echo hello from $WHO | /bin/busybox nc -w 5 198.51.100.2 7000; sleep $SECONDS"
DOCKERFILE = """FROM scratch
ADD rootfs.tar /
ARG WHO
ARG SECONDS=0
RUN ["/bin/busybox", "sh", "-c", "%s"]
""" % SAY


class Outside:
    """A machine outside that notes what it is told, and by whom."""

    def __init__(self):
        self.heard = {}
        with netns.inside("out"):
            self.server = socket.create_server(("198.51.100.2", 7000), backlog=64)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            connection, peer = self.server.accept()
            with connection:
                connection.settimeout(5)
                self.heard[connection.recv(100).decode().strip()] = peer[0]

    def expect(self, who):
        """WHO has spoken, from the host's address."""
        host.expect("what %s told the machine outside" % who, self.heard.get("hello from " + who), host.HOST)


def buildkit(lab):
    """BuildKit with its bridge network; the report."""
    os.makedirs(DIR + "/bin")
    for name in NAMES:
        os.symlink("%s/%s" % (host.PLUGINS, name), "%s/bin/buildkit-cni-%s" % (DIR, name))
    host.shell("tar -C %s -cf %s/rootfs.tar ." % (host.ROOTFS, DIR))
    with open(DIR + "/Dockerfile", "w") as f:
        f.write(DOCKERFILE)
    case = BuildKit(lab)
    before = remains.seen()
    case.start()
    try:
        report = case.run()
        case.stop()
        report["left"] += ["end: " + l for l in sorted(remains.since(before)) if OF_ONE.search(l) or not SHARED.search(l)]
        return report
    except host.RuntimeFailure as e:
        raise host.RuntimeFailure("%s\nbuildkitd: %s" % (e, open(DIR + "/log").read()[-2000:]))
    finally:
        case.stop()
        host.tidy("buildkit")


class BuildKit:
    """One run of buildkitd."""

    def __init__(self, lab):
        self.env = dict(os.environ, PATH=":".join([DIR + "/bin", lab["path"], os.path.dirname(lab["runc"]), os.environ["PATH"]]))
        self.crowd, self.daemon, self.outside = 4 if lab["brief"] else 16, None, Outside()
        self.times, self.phases = {}, (self._one, self._crowd) + (() if lab.get("timed") else (self._killed,))

    def start(self):
        """Starts buildkitd."""
        with open(DIR + "/log", "a") as log:
            self.daemon = subprocess.Popen(
                ["buildkitd", "--root", DIR + "/root", "--addr", "unix://%s/sock" % DIR, "--oci-worker=true", "--containerd-worker=false",
                 "--oci-worker-net=bridge", "--oci-worker-binary=runc", "--oci-worker-snapshotter=overlayfs", "--oci-cni-pool-size=2"],
                env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        host.until(lambda: not self.daemon.poll() and "ID" in host.shell(self._buildctl("debug workers"), self.env, may_fail=True), "buildkitd")

    def stop(self, how=signal.SIGTERM):
        """Ends buildkitd."""
        if self.daemon.poll() is None:
            self.daemon.send_signal(how)
            self.daemon.wait(30)

    @staticmethod
    def _buildctl(what):
        return "buildctl --addr unix://%s/sock %s" % (DIR, what)

    def _build(self, who, seconds=0, may_fail=False):
        options = "--opt build-arg:WHO=%s --opt build-arg:SECONDS=%d" % (who, seconds)
        host.shell(self._buildctl("build --frontend dockerfile.v0 --local context={0} --local dockerfile={0} --no-cache --progress plain {1}"
                                  .format(DIR, options)), self.env, may_fail)

    def run(self):
        """Every phase."""
        self._build("first")
        phases = Phases(self, self._seen)
        for phase in self.phases:
            phases.run(phase)
        return phases.report(version=builds.version("buildkitd"), times=self.times)

    def end_all(self):
        """Builds end by themselves."""

    @staticmethod
    def _seen():
        """The pool keeps namespaces: what is left is counted at the daemon's end."""
        return set()

    def _one(self):
        start = time.monotonic()
        self._build("one")
        self.times["1 build, done"] = time.monotonic() - start
        self.outside.expect("one")

    def _crowd(self):
        names = ["crowd%d" % i for i in range(self.crowd)]
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(self._build, names))
        self.times["%d builds, all done" % self.crowd] = time.monotonic() - start
        for name in names:
            self.outside.expect(name)

    def _killed(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(self._build, "torn", 30, True)
            host.until(lambda: "hello from torn" in self.outside.heard, "the RUN that is to be torn")
            self.stop(signal.SIGKILL)
        orphans = _attached()
        self.start()
        self._build("after")
        self.outside.expect("after")
        # The next daemon ends what the killed one had in its pool, one after the other, beside its work.
        deadline = time.monotonic() + 60
        while orphans & _attached() and time.monotonic() < deadline:
            time.sleep(0.1)


def _attached():
    """The attachments in libcni's cache."""
    return set(glob.glob("/var/lib/cni/results/buildkit-*"))


def buildah(lab):
    """buildah with Podman's CNI network; the report."""
    env = podman.environment(lab["packages"])
    outside = Outside()
    os.makedirs(DIR)

    def call(*args):
        return host.shell(" ".join(["buildah"] + ["'%s'" % a for a in args]), env).strip()

    def build(who):
        name = call("from", "--name", who, "scratch")
        call("copy", name, host.ROOTFS, "/")
        call("run", "--isolation", "oci", "--runtime", lab["packages"] + "/usr/bin/crun", "--env", "WHO=" + who, "--env", "SECONDS=0", name, "--",
             "/bin/busybox", "sh", "-c", SAY)
        outside.expect(who)
        call("rm", name)

    build("first")
    known = remains.seen()
    build("second")
    left = sorted(remains.seen() - known)
    host.tidy("buildah", "libpod_parent")
    return {"left": left + host.left_over("/var/lib/cni/networks/podman"), "version": call("--version").split()[2]}
