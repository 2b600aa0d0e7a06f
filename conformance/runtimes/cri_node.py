# SPDX-License-Identifier: Apache-2.0
"""A node as the kubelet sees one: containerd with its CRI plugin, and crictl in the kubelet's place."""
import json
import os
import re
import signal
import subprocess
import urllib.request

from . import host, image, remains

DIR = "/run/lab/cri"
OF_NETWORKS = re.compile("cni|network|plugin type", re.I)
KILLED = "-- killed by the lane --\n"
SOCKET = DIR + "/sock"
RUNTIME = """
[plugins.'{runtime}'.containerd]
  default_runtime_name = "runc"
[plugins.'{runtime}'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'{runtime}'.containerd.runtimes.runc.options]
  BinaryName = "{runc}"
"""
V1 = """version = 2
root = "{dir}/root"
state = "{dir}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "{dir}/sock"
[ttrpc]
  address = "{dir}/ttrpc"
[metrics]
  address = "127.0.0.1:1338"
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins.'io.containerd.grpc.v1.cri'.cni]
  bin_dir = "{plugins}"
  conf_dir = "/etc/cni/net.d"
""" + RUNTIME.replace("{runtime}", "io.containerd.grpc.v1.cri")
V2 = """version = 3
root = "{dir}/root"
state = "{dir}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.nri.v1.nri",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "{dir}/sock"
[ttrpc]
  address = "{dir}/ttrpc"
[metrics]
  address = "127.0.0.1:1338"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{image}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "/etc/cni/net.d"
""" + RUNTIME.replace("{runtime}", "io.containerd.cri.v1.runtime")


class Node:
    """containerd and its pods."""

    name = "containerd"
    # What shims and containerd say to each other at their ends depends on who is first, unless it is about networks.
    noise = re.compile('ttrpc|shim|cleanup warnings|cgroups: epoll wait" error=shutdown')
    own_state = None  # what the daemon keeps on the host by itself, with which no plugin has to do
    maps_ports_by_cni = True  # else the daemon does, and forwards less: not what comes from the loopback or from pods

    def __init__(self, path, runc, is_v1):
        """PATH: the directories of containerd, its shim, ctr and crictl."""
        self.env = dict(os.environ, PATH=path + ":" + os.environ["PATH"])
        self.folders = path.split(":") + [os.path.dirname(runc)]
        self.daemon, self.log, self.starts, self.is_torn = None, DIR + "/log", 0, False
        os.makedirs(DIR)
        with open(DIR + "/config.toml", "w") as f:
            f.write((V1 if is_v1 else V2).format(dir=DIR, image=image.NAME, plugins=host.PLUGINS, runc=runc))
        with open(DIR + "/crictl.yaml", "w") as f:
            f.write("runtime-endpoint: unix://%s\nimage-endpoint: unix://%s\ntimeout: 60\n" % (SOCKET, SOCKET))

    @staticmethod
    def endpoint():
        """Where it listens, as Kubernetes writes that."""
        return "unix://" + SOCKET

    def version(self):
        """containerd's version, as it says itself."""
        words = host.shell("containerd --version", self.env).split()
        return next(w for w in words if re.match(r"v?\d", w)).lstrip("v").split("~")[0].split("+")[0]

    def start(self):
        """Starts containerd; its pods live on from an earlier one."""
        log = open(self.log, "a")
        self.daemon = subprocess.Popen(self.command(), env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        host.until(self._is_ready, "%s to say that the network is ready" % self.name, 30)
        self.starts += 1
        if self.starts == 1:
            self.first_start()

    def command(self):
        """The daemon's command line."""
        return ["containerd", "-c", DIR + "/config.toml"]

    def first_start(self):
        """Puts the image into the daemon's store."""
        image.archive(host.ROOTFS, DIR + "/image.tar")
        host.shell("ctr -a %s -n k8s.io images import --digests=false %s/image.tar" % (SOCKET, DIR), self.env)

    def setup_seconds(self, since=0.0, pods=1):
        """How long containerd has been in ADD of networks (its own metric) for each of some pods; None where a daemon does not tell."""
        with urllib.request.urlopen("http://127.0.0.1:1338/v1/metrics", timeout=5) as answer:
            text = answer.read().decode()
        sums = re.findall(r'^\S*network_plugin_operations_duration_seconds\S*_sum\{operation_type="set_up_pod"\} (\S+)', text, re.M)
        return ((float(sums[0]) if sums else 0.0) - since) / pods

    def _is_ready(self):
        if self.daemon.poll() is not None:
            raise host.RuntimeFailure(self.name + " ended: " + self.log_tail())
        return self.conditions().get("NetworkReady", [False])[0]

    def conditions(self):
        """What containerd says of itself: {condition: (is it so, why not)}."""
        answer = host.shell("crictl -c %s/crictl.yaml info" % DIR, self.env, may_fail=True)
        try:
            status = json.loads(answer)["status"]
        except ValueError:
            return {}
        return {c["type"]: (c["status"], c.get("message", "")) for c in status["conditions"]}

    def kill(self, how=signal.SIGKILL):
        """Ends containerd. From now on it may complain of that, but not of networks."""
        with open(self.log, "a") as f:
            f.write(KILLED if not self.is_torn else "")
        self.is_torn = True
        self.daemon.send_signal(how)
        self.daemon.wait()

    def crictl(self, *args, may_fail=False):
        """One call of crictl; its output."""
        return host.shell(" ".join(["crictl", "-c", DIR + "/crictl.yaml"] + list(args)), self.env, may_fail=may_fail, timeout=90).strip()

    def run_pod(self, name, may_fail=False, **more):
        """RunPodSandbox; the pod's ID."""
        pod: dict = {"metadata": {"name": name, "namespace": "lab", "uid": name, "attempt": 1}, "log_directory": DIR + "/logs",
                     "linux": {"cgroup_parent": "/cnibox-lab", "security_context": {"namespace_options": {"pid": 1}}}}
        pod["linux"].update(more.pop("linux", {}))
        pod.update(more)
        with open("%s/pod-%s.json" % (DIR, name), "w") as f:
            json.dump(pod, f)
        out = self.crictl("runp", "%s/pod-%s.json" % (DIR, name), may_fail=may_fail)
        return out.splitlines()[-1] if out else ""

    def serve(self, name, pod):
        """A container in the pod: a web server on port 80 that says its name, in both families."""
        serving = host.serving(name)
        container = {"metadata": {"name": name, "attempt": 1}, "image": {"image": image.NAME}, "command": serving[:1], "args": serving[1:],
                     "log_path": name + ".log", "linux": {"security_context": {"namespace_options": {"pid": 1}}}}
        with open("%s/container-%s.json" % (DIR, name), "w") as f:
            json.dump(container, f)
        made = self.crictl("create", "--no-pull", pod, "%s/container-%s.json" % (DIR, name), "%s/pod-%s.json" % (DIR, name))
        self.crictl("start", made.splitlines()[-1])

    def inspect(self, pod):
        """(addresses, network namespace's name) of a pod."""
        answer = json.loads(self.crictl("inspectp", pod))
        network = answer["status"]["network"]
        addresses = [network["ip"]] + [a["ip"] for a in network.get("additionalIps") or ()]
        return addresses, os.path.basename(_namespace(answer["info"]))

    def pods(self):
        """IDs of all pods, also of those that are not ready."""
        return self.crictl("pods", "-q", "--no-trunc").split()

    def unstopped(self, names):
        """The sandboxes of the named pods that StopPodSandbox has not been through."""
        pods = json.loads(self.crictl("pods", "-o", "json"))["items"] or ()
        said = open(self.log).read()
        return [p["id"] for p in pods if p["metadata"]["name"] in names and 'StopPodSandbox for \\"%s\\" returns successfully' % p["id"] not in said]

    def remove(self, *pods):
        """StopPodSandbox and RemovePodSandbox; what crictl said."""
        return self.crictl("rmp", "-f", *pods) if pods else ""

    def log_tail(self):
        """The end of containerd's log, for a failure."""
        return open(self.log).read()[-2500:]

    def warnings(self):
        """What containerd warned of, without what differs from run to run; of networks only, once it was killed."""
        log = open(self.log).read()
        for folder in self.folders:  # the names of the folders that its programs are in say nothing of networks
            log = log.replace(folder, "")
        calm, _, torn = log.partition(KILLED)
        lines = calm.splitlines() + [l for l in torn.splitlines() if OF_NETWORKS.search(l)]
        said = [l for l in lines if re.search(r"level=(warning|error|fatal)", l)]
        return sorted({remains.plain(l) for l in said if OF_NETWORKS.search(l) or not self.noise.search(l)})


def _namespace(info):
    return next(n["path"] for n in info["runtimeSpec"]["linux"]["namespaces"] if n["type"] == "network")
