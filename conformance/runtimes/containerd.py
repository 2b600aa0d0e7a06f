# SPDX-License-Identifier: Apache-2.0
"""containerd: `ctr run --cni` with a root file system of busybox.

ctr gives no port mappings, so the configuration holds them. It deletes the
network when the container has ended: DEL without a network namespace.
"""
import json
import os
import subprocess

from . import host

DIR = "/run/lab/containerd"
CONF = {"cniVersion": "1.0.0", "name": "ctr", "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True,
     "ipam": {"type": "host-local", "subnet": "10.61.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "firewall"},
    {"type": "portmap", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}}]}
CONFIG = """version = 2
root = "{0}/root"
state = "{0}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "{0}/sock"
[ttrpc]
  address = "{0}/ttrpc"
"""


def run(packages):
    """One container with a published port, twice; what was left behind."""
    os.makedirs("/etc/cni/net.d")
    with open("/etc/cni/net.d/10-ctr.conflist", "w") as f:
        json.dump(CONF, f)
    os.makedirs(DIR)
    with open(DIR + "/config.toml", "w") as f:
        f.write(CONFIG.format(DIR))
    env = dict(os.environ, PATH="%s/usr/bin:%s/usr/sbin:%s" % (packages, packages, os.environ["PATH"]))
    with open(DIR + "/log", "w") as log:
        daemon = subprocess.Popen(["containerd", "-c", DIR + "/config.toml"], env=env, stdout=log, stderr=log)
    try:
        host.until(lambda: os.path.exists(DIR + "/sock"), "containerd's socket")
        for name in ("one", "two"):
            _container(name, env)
    except host.RuntimeFailure as e:
        raise host.RuntimeFailure("%s\ncontainerd: %s" % (e, open(DIR + "/log").read()[-1500:]))
    finally:
        daemon.terminate()
        daemon.wait()
        host.tidy("cnibox-lab")
    return host.left_over("/var/lib/cni/networks/ctr")


def _container(name, env):
    ctr = ["ctr", "-a", DIR + "/sock", "-n", "cnibox-lab"]
    with open(DIR + "/" + name, "w") as log:
        client = subprocess.Popen(ctr + ["run", "--rootfs", "--cni", host.ROOTFS, name] + host.serving(name),
                                  env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        host.expect("answer through the published port", host.fetch(8080), host.GREETING + name)
    except host.RuntimeFailure as e:
        raise host.RuntimeFailure("%s\nctr: %s" % (e, open(DIR + "/" + name).read()[-1500:]))
    host.shell(" ".join(ctr) + " task kill -s KILL " + name, env)
    host.until(lambda: client.poll() is not None, "ctr's end")
    host.shell(" ".join(ctr) + " container rm " + name, env, may_fail=True)

