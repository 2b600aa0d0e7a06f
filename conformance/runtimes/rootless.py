# SPDX-License-Identifier: Apache-2.0
"""nerdctl without root: containerd and the plugins in a user namespace that RootlessKit makes for an ordinary user.

The plugins are root of that namespace only. A port goes from RootlessKit's driver on the host to portmap inside.
"""
import json
import os
import subprocess

from . import host, image, remains

USER = 1500
HOME = "/run/lab/home"
RUN = "/run/user/%d" % USER
STATE = RUN + "/containerd-rootless"
CONFIG = """version = 3
root = "{home}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images", "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs"]
[grpc]
  address = "/run/containerd/containerd.sock"
[ttrpc]
  address = "/run/containerd/containerd.sock.ttrpc"
"""
# In the user namespace, before containerd: folders of the user's own where the plugins keep theirs.
INSIDE = """set -e
rm -rf /var/lib/cni /run/cni /run/cnibox /run/netns /run/containerd; mkdir -p /var/lib/cni /run/cni
exec containerd -c %s/config.toml
""" % HOME


def run(lab):
    """A network, two containers, a published port, their ends; the report."""
    user = User(lab)
    try:
        user.start()
        return _life(user)
    except host.RuntimeFailure as e:
        raise host.RuntimeFailure("%s\n%s" % (e, open(HOME + "/log").read()[-1500:]))
    finally:
        user.stop()


class User:
    """An ordinary user with a range of subordinate IDs, and what runs for it."""

    def __init__(self, lab):
        self.daemon = None
        host.shell("mount -t tmpfs tmpfs /dev/net && mknod -m 666 /dev/net/tun c 10 200")  # as systems with users have it
        for path, line in (("passwd", "lab:x:%d:%d::%s:/bin/sh" % (USER, USER, HOME)), ("group", "lab:x:%d:" % USER),
                           ("subuid", "lab:100000:65536"), ("subgid", "lab:100000:65536")):
            with open("/etc/" + path, "a") as f:
                f.write(line + "\n")
        for directory in (HOME, RUN):
            os.makedirs(directory)
            os.chown(directory, USER, USER)
        path = [lab["path"], lab["rootless"] + "/usr/bin", os.path.dirname(lab["runc"]), os.environ["PATH"], "/usr/sbin:/sbin"]
        self.env = dict(os.environ, PATH=":".join(path), HOME=HOME, XDG_RUNTIME_DIR=RUN, XDG_DATA_HOME=HOME + "/data", USER="lab",
                        XDG_CONFIG_HOME=HOME + "/config")
        with open(HOME + "/config.toml", "w") as f:
            f.write(CONFIG.format(home=HOME))
        image.archive(host.ROOTFS, HOME + "/image.tar")

    @staticmethod
    def _as_user(command):
        return ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--"] + command

    def start(self):
        """RootlessKit with containerd inside."""
        kit = ["rootlesskit", "--state-dir=" + STATE, "--net=slirp4netns", "--mtu=65520", "--slirp4netns-sandbox=false", "--disable-host-loopback",
               "--port-driver=builtin", "--copy-up=/etc", "--copy-up=/run", "--copy-up=/var/lib", "--propagation=rslave", "sh", "-c", INSIDE]
        with open(HOME + "/log", "a") as log:
            self.daemon = subprocess.Popen(self._as_user(kit), env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            host.until(lambda: "Server:" in self.nerdctl("version", may_fail=True), "containerd in the user namespace", 20)
        except host.RuntimeFailure as e:
            raise host.RuntimeFailure("%s: %s" % (e, self.nerdctl("version", may_fail=True)))

    def stop(self):
        """Ends everything."""
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait(30)

    def shell(self, command, may_fail=False):
        """A command line of the user's."""
        return host.shell(" ".join(self._as_user([]) + ["sh", "-c", _quoted(command)]), self.env, may_fail)

    def inside(self, command):
        """A command line in the user namespace."""
        pid = open(STATE + "/child_pid").read().strip()
        return self.shell("nsenter --preserve-credentials -m -U -n -t %s -- sh -c %s" % (pid, _quoted(command)))

    def nerdctl(self, *args, may_fail=False):
        """One call of nerdctl, as the user."""
        words = ["nerdctl", "--namespace", "lab", "--snapshotter", "native", "--cgroup-manager", "none", "--cni-path", host.PLUGINS]
        return self.shell(" ".join(words + [_quoted(a) for a in args]), may_fail).strip()

    def remains(self):
        """Interfaces, rules and files inside."""
        rules = "iptables-save; ip6tables-save; ip -br link show | cut -d' ' -f1; find /var/lib/cni /run/cni /run/cnibox /run/netns -type f 2>/dev/null || true"
        return {remains.plain(l.split(" [")[0]) for l in self.inside(rules).splitlines() if not l.startswith("#")}


def _quoted(text):
    return "'%s'" % text.replace("'", "'\\''")


def _life(user):
    user.inside("ctr -n lab images import --digests=false --no-unpack %s/image.tar" % HOME)
    user.nerdctl("network", "create", "labnet", "--subnet", "10.68.0.0/24")
    start = ("run", "-d", "--pull", "never", "--network", "labnet", "--security-opt", "seccomp=unconfined")

    def serve(name, *args):
        user.nerdctl(*start, "--name", name, *args, "--entrypoint", "/bin/busybox", image.NAME, *host.serving(name)[1:])

    serve("first", "-p", "8080:80")
    user.nerdctl("rm", "-f", "first")
    known = user.remains()
    serve("one", "-p", "8080:80")
    serve("two")
    host.expect("port on the host", host.fetch(8080, "host", "127.0.0.1"), host.GREETING + "one")
    host.expect("port from outside", host.fetch(8080), host.GREETING + "one")
    addresses = [json.loads(user.nerdctl("inspect", "--mode", "dockercompat", n))[0]["NetworkSettings"]["IPAddress"] for n in ("one", "two")]
    host.expect("addresses", len(set(addresses)), 2)
    user.nerdctl("rm", "-f", "two")
    host.expect("port after the neighbour's end", host.fetch(8080), host.GREETING + "one")
    user.nerdctl("rm", "-f", "one")
    left = sorted(user.remains() - known)
    user.nerdctl("network", "rm", "labnet")
    return {"left": left, "version": user.nerdctl("--version").split()[-1]}
