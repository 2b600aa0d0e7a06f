# SPDX-License-Identifier: Apache-2.0
"""The runtimes of the lane: what each needs from the cache, and what runs in its sandbox."""
import functools
from typing import Any, Callable, NamedTuple

from . import beside, builders, builds, containerd, cri, firewalld, host, kubelet, libcni, nerdctl, packages, podman, rootless, soak
from .cri_node import Node
from .crio_node import CrioNode


class Runtime(NamedTuple):
    """A row of the lane's table."""

    name: str
    what: str                            # what is run, for the table
    prepare: Callable[[Any], dict]       # fills the cache; paths that `run` needs, `packages` among them
    run: Callable[[dict], dict]          # in the sandbox; a report: left, and version, warnings, times where there are any
    stays: tuple = ()                    # phases in which it is the runtime that makes things stay, whatever the plugins
    is_daily: bool = False               # part of every short form; of the others another share each day
    has_control: bool = True             # runs with the Go plugins alone, too
    is_timed: bool = True                # its times are told; of programs in several versions those of the newest


def chosen(only, share):
    """The runtimes whose names begin with one of ONLY; without that, of those that are not daily this share."""
    if only:
        return [r for r in RUNTIMES if any(r.name.startswith(o) for o in only)]
    others = [r for r in RUNTIMES if not r.is_daily][share]
    return [r for r in RUNTIMES if r.is_daily or r in others]


def named(name):
    """The runtime with that name."""
    return next(r for r in RUNTIMES if r.name == name)


@functools.cache
def _debian(cache):
    return {"packages": packages.ready(cache), "driver": packages.driver(cache), "libcni": packages.libcni_version(cache)}


def _said(program, settings):
    """The version that an unpacked program says it is."""
    return host.shell("%s/usr/bin/%s --version" % (settings["packages"], program)).split()[2].split("~")[0]


def _containerd(suite):
    """containerd as a Debian suite has it. runc is bookworm's throughout: a newer suite's asks for a newer C library."""
    def prepare(cache):
        root = packages.unpacked(cache, suite, ["containerd"])
        return _with_crictl(cache, root + "/usr/bin:" + builds.programs(cache, "crictl"))
    return prepare


def _containerd_built(cache):
    """containerd built from its module."""
    return _with_crictl(cache, builds.programs(cache, "containerd", "containerd-shim-runc-v2", "ctr", "crictl"))


def _nerdctl(cache):
    """nerdctl, and the containerd it was made for."""
    settings = _containerd_built(cache)
    return dict(settings, path=settings["path"] + ":" + builds.programs(cache, "nerdctl"))


def _crio(cache):
    settings = _with_crictl(cache, builds.programs(cache, "crio", "crictl"))
    return dict(settings, pinns=builds.pinns(cache))


def _kubelet(cache):
    settings = _containerd_built(cache)
    return dict(settings, path=settings["path"] + ":" + builds.programs(cache, "kubelet"))


def _buildkit(cache):
    debian = _debian(cache)
    return dict(debian, path=builds.programs(cache, "buildkitd", "buildctl"), runc=debian["packages"] + "/usr/sbin/runc")


def _soak(cache):
    return dict(_containerd_built(cache), go=builds.go_plugins(cache))


def _rootless(cache):
    root = packages.unpacked(cache, "bookworm", packages.ROOTLESS)
    return dict(_nerdctl(cache), rootless=root, libraries=[root])


def _with_crictl(cache, path):
    debian = _debian(cache)
    return dict(debian, path=path, runc=debian["packages"] + "/usr/sbin/runc")


def _firewalld(cache):
    return dict(_debian(cache), firewalld=packages.unpacked(cache, "bookworm", packages.FIREWALLD))


def _cri(make_node, version="1.1.0"):
    return lambda settings: cri.run(dict(settings, crowds=CROWDS[settings["brief"]]), make_node, version)


def _containerd_node(is_v1=False):
    return lambda lab: Node(lab["path"], lab["runc"], is_v1)


# How many containers at once, in the short form and in the whole one.
CROWDS = {True: (20,), False: (1, 20, 60)}
CRI = "pods by crictl: host ports (tcp, udp, sctp, one address), two families, bandwidth, sysctls, a crowd, kills, namespaces removed"
FIREWALLD = "a zone's sources in containers' lives: --reload, restart, panic mode, its end"
BESIDE = "FORWARD drops, their chains: a life, their restart, a saved ruleset put back"

RUNTIMES = (
    Runtime("libcni", "every verb, its cache, its GC", _debian,
            lambda s: {"left": libcni.run(s["driver"]), "version": s["libcni"]}, is_daily=True),
    Runtime("containerd", "`ctr run --cni`, a published port", _debian,
            lambda s: {"left": containerd.run(s["packages"]), "version": _said("containerd", s)}),
    Runtime("podman", "a network, two containers, a published port", _debian,
            lambda s: {"left": podman.run(s["packages"]), "version": _said("podman", s)}),
    Runtime("cri-containerd-1.6", CRI, _containerd("bookworm"), _cri(_containerd_node(is_v1=True), "1.0.0"), is_timed=False),
    Runtime("cri-containerd-2.1", CRI + "; STATUS", _containerd("sid"), _cri(_containerd_node()), is_timed=False),
    Runtime("cri-containerd-2.3", CRI + "; STATUS", _containerd_built, _cri(_containerd_node()), is_daily=True),
    Runtime("cri-o", CRI + "; STATUS, CHECK, GC", _crio, _cri(CrioNode)),
    Runtime("kubelet", "static pods on containerd 2.3: host ports (tcp, udp), two families, restarts, a pod taken away, kills in the middle, a crowd",
            _kubelet, lambda s: kubelet.run(dict(s, crowds=CROWDS[s["brief"]]))),
    Runtime("firewalld-nftables", FIREWALLD, _firewalld, lambda s: firewalld.run(s, "nftables"), ("end in panic",)),
    Runtime("firewalld-iptables", FIREWALLD, _firewalld, lambda s: firewalld.run(s, "iptables"), ("end in panic",)),
    Runtime("beside-docker", BESIDE, _debian, lambda s: beside.run(s, beside.DOCKER, None)),
    Runtime("beside-kube-proxy", BESIDE + "; its chain that marks", _debian, lambda s: beside.run(s, beside.KUBE, "KUBE-MARK-MASQ")),
    Runtime("nerdctl", "networks of its own: -p, --ip, --mac-address, two families, isolation, names, a crowd, restarts, `network rm`", _nerdctl,
            lambda s: nerdctl.run(dict(s, crowds=CROWDS[s["brief"]]))),
    Runtime("nerdctl-rootless", "in a user namespace: a network, a published port, two ends, `network rm`", _rootless, rootless.run),
    Runtime("buildkit", "RUNs with a network each, by the buildkit-cni- names: one, many at once, a pool, killed in a RUN", _buildkit, builders.buildkit),
    Runtime("buildah", "RUNs on Podman's network", _debian, builders.buildah),
    Runtime("soak", "crictl and Podman at once, faults at random, the Go plugins in turns with ours", _soak,
            lambda s: soak.run(dict(s, seconds=soak.seconds(s["brief"]))), is_daily=True, has_control=False),
)
