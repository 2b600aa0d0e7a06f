# SPDX-License-Identifier: Apache-2.0
"""A node whose pods CRI-O makes.

Unlike containerd, CRI-O calls CHECK (after every ADD) and GC (when it starts) itself. It maps host ports by rules of its own
and tells plugins of none, so portmap is called but has nothing to do. When it is killed it forgets pods and its entries of
their ports; what the plugins made for those its GC takes away.
"""
import os
import re

from . import host, image, podman
from .cri_node import DIR, SOCKET, Node

CONFIG = """[crio]
root = "{dir}/storage"
runroot = "{dir}/run"
storage_driver = "overlay"
log_dir = "{dir}/logs"
version_file = "{dir}/version"
clean_shutdown_file = ""
[crio.api]
listen = "{dir}/sock"
[crio.runtime]
default_runtime = "runc"
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
pinns_path = "{pinns}"
namespaces_dir = "/var/run"
container_exits_dir = "{dir}/exits"
container_attach_socket_dir = "{dir}/attach"
apparmor_profile = "unconfined"
[crio.runtime.runtimes.runc]
runtime_path = "{runc}"
runtime_type = "oci"
runtime_root = "{dir}/runc"
monitor_path = "{conmon}"
[crio.image]
pause_image = "{image}"
pause_command = ""
signature_policy = "/etc/containers/policy.json"
[crio.network]
network_dir = "/etc/cni/net.d/"
plugin_dirs = ["{plugins}"]
[crio.nri]
enable_nri = false
"""


class CrioNode(Node):
    """CRI-O and its pods."""

    name = "CRI-O"
    maps_ports_by_cni = False
    noise = re.compile("Stopping container")  # whether it ends in time
    own_state = re.compile(r"nft ip6? crio-hostports: ")

    def __init__(self, lab):
        super().__init__(lab["path"], lab["runc"], is_v1=False)
        self.packages = lab["packages"]
        with open(DIR + "/config.toml", "w") as f:
            f.write(CONFIG.format(dir=DIR, pinns=lab["pinns"], runc=lab["runc"], conmon=lab["packages"] + "/usr/bin/conmon", image=image.NAME,
                                  plugins=host.PLUGINS))
        self._load()

    def _load(self):
        """Puts the image into CRI-O's storage, by Podman: nothing is pulled."""
        image.archive(host.ROOTFS, DIR + "/image.tar")
        env = podman.environment(self.packages)
        call = "podman --root {0}/storage --runroot {0}/run --storage-driver overlay ".format(DIR)
        made = host.shell(call + "pull -q oci-archive:%s/image.tar" % DIR, env).split()[-1]
        host.shell(call + "tag %s %s" % (made, image.NAME), env)

    def version(self):
        """CRI-O's version, as it says itself."""
        return host.shell("crio --version", self.env).split()[2]

    def command(self):
        """CRI-O's command line, of a configuration that nothing of the machine's own is put into."""
        os.makedirs(DIR + "/empty", exist_ok=True)
        return ["crio", "--config", DIR + "/config.toml", "--config-dir", DIR + "/empty"]

    def first_start(self):
        """Everything is there already."""

    def setup_seconds(self, since=0.0, pods=1):
        """CRI-O tells how long the last ADD took, not all of them."""
        return None
