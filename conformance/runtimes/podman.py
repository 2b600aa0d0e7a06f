# SPDX-License-Identifier: Apache-2.0
"""podman 4 with its CNI backend: a network, two containers, a published port, removal."""
import os

from . import host

DIR = "/run/lab/podman"
CONFIG = """[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
conmon_path = ["{root}/usr/bin/conmon"]
helper_binaries_dir = ["{root}/usr/lib/podman"]
tmp_dir = "{dir}/tmp"
static_dir = "{dir}/static"
volume_path = "{dir}/volumes"
infra_image = ""
[engine.runtimes]
crun = ["{root}/usr/bin/crun"]
runc = ["{root}/usr/sbin/runc"]
[network]
network_backend = "cni"
cni_plugin_dirs = ["{plugins}"]
network_config_dir = "/etc/cni/net.d"
[containers]
log_driver = "k8s-file"
seccomp_profile = "unconfined"
pids_limit = 0
"""


def environment(packages):
    """Writes the configuration of Podman's tools; the environment that names it."""
    os.makedirs(DIR)
    files = {"containers.conf": CONFIG.format(root=packages, dir=DIR, plugins=host.PLUGINS),
             "storage.conf": '[storage]\ndriver = "vfs"\nrunroot = "%s/runroot"\ngraphroot = "%s/graphroot"\n' % (DIR, DIR)}
    for name, text in files.items():
        with open(os.path.join(DIR, name), "w") as f:
            f.write(text)
    os.makedirs("/etc/containers", exist_ok=True)
    with open("/etc/containers/policy.json", "w") as f:
        f.write('{"default": [{"type": "insecureAcceptAnything"}]}')
    return dict(os.environ, CONTAINERS_CONF=DIR + "/containers.conf", CONTAINERS_STORAGE_CONF=DIR + "/storage.conf",
                HOME=DIR, TMPDIR=DIR,
                PATH="%s/usr/bin:%s/usr/sbin:%s" % (packages, packages, os.environ["PATH"]))


def run(packages):
    """Two containers on a network, one published; what was left behind."""
    env = environment(packages)

    def podman(*args):
        return host.shell(" ".join(["podman"] + ["'%s'" % a.replace("'", "'\\''") for a in args]), env).strip()

    host.expect("podman's network backend", podman("info", "--format", "{{.Host.NetworkBackend}}"), "cni")
    podman("network", "create", "--disable-dns", "--subnet", "10.62.0.0/24", "labnet")
    run_ = ("run", "-d", "--network", "labnet", "--security-opt", "label=disable")
    for name, ports in (("one", ("-p", "8080:80")), ("two", ())):
        _copy_rootfs(name)
        podman(*run_, "--name", name, *ports, "--rootfs", DIR + "/rootfs-" + name, *host.serving(name))
    host.expect("answer through the published port", host.fetch(8080), host.GREETING + "one")
    address = podman("inspect", "--format", "{{.NetworkSettings.Networks.labnet.IPAddress}}", "two")
    seen = podman("exec", "one", "/bin/busybox", "wget", "-q", "-O", "-", "http://%s/" % address)
    host.expect("answer of the second container to the first", seen, host.GREETING + "two")
    podman("rm", "-f", "-t", "0", "two")
    host.expect("answer after the neighbour went", host.fetch(8080), host.GREETING + "one")
    podman("rm", "-f", "-t", "0", "one")
    left = host.left_over("/var/lib/cni/networks/labnet")
    podman("network", "rm", "labnet")
    host.tidy("libpod_parent")
    return left


def _copy_rootfs(name):
    host.shell("cp -a %s %s/rootfs-%s" % (host.ROOTFS, DIR, name))
