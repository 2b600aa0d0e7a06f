# SPDX-License-Identifier: Apache-2.0
"""Programs that Debian does not package, built from their Go modules into the cache, and Go plugins that say their version.

Each module is copied out of the module cache and built as the main module, so that its own go.sum and replacements hold.
"""
import json
import os
import shutil
import subprocess

from ..upstream import overlay
from ..upstream.cache import DEBIAN_VERSION
from ..upstream.debian import LabError, sh
from ..upstream.toolchain import goroot

# Program: module, version, package inside it, linker flags (-X of those that print a version they are given).
PROGRAMS = {
    "crictl": ("sigs.k8s.io/cri-tools", "v1.36.0", "./cmd/crictl", "-X sigs.k8s.io/cri-tools/pkg/version.Version=v1.36.0"),
    "nerdctl": ("github.com/containerd/nerdctl/v2", "v2.3.5", "./cmd/nerdctl",
                "-X github.com/containerd/nerdctl/v2/pkg/version.Version=v2.3.5"),
    "containerd": ("github.com/containerd/containerd/v2", "v2.3.7", "./cmd/containerd",
                   "-X github.com/containerd/containerd/v2/version.Version=2.3.7"),
    "containerd-shim-runc-v2": ("github.com/containerd/containerd/v2", "v2.3.7", "./cmd/containerd-shim-runc-v2",
                                "-X github.com/containerd/containerd/v2/version.Version=2.3.7"),
    "ctr": ("github.com/containerd/containerd/v2", "v2.3.7", "./cmd/ctr", "-X github.com/containerd/containerd/v2/version.Version=2.3.7"),
    "buildkitd": ("github.com/moby/buildkit", "v0.34.2", "./cmd/buildkitd", "-X github.com/moby/buildkit/version.Version=v0.34.2"),
    "buildctl": ("github.com/moby/buildkit", "v0.34.2", "./cmd/buildctl", "-X github.com/moby/buildkit/version.Version=v0.34.2"),
}


def version(program):
    """The version of a program that is built here."""
    return PROGRAMS[program][1].lstrip("v")


def programs(cache, *names):
    """The directory with the named programs, each built when it is not there yet."""
    for name in names:
        path = os.path.join(_directory(cache, name), name)
        if not os.path.exists(path):
            _build(cache, name, path)
    return ":".join(sorted({_directory(cache, name) for name in names}))


def _directory(cache, name):
    module, release = PROGRAMS[name][:2]
    return os.path.join(cache.root, "programs", "%s@%s" % (module.replace("/", "_"), release))


def environment(cache):
    """The environment of Go runs that build a module, with a cache of their own."""
    root = goroot(cache.root)
    env = {k: v for k, v in os.environ.items() if not k.startswith("CNI_")}
    env.update(PATH=root + "/bin:" + env.get("PATH", ""), GOROOT=root, GOTOOLCHAIN="local", CGO_ENABLED="0", GO111MODULE="on",
               GOFLAGS="-buildvcs=false -mod=mod", GOCACHE=os.path.join(cache.root, "gocache"))
    env.setdefault("GOMODCACHE", os.path.join(cache.root, "modcache"))
    return env


def _build(cache, name, path):
    module, release, package, flags = PROGRAMS[name]
    print("compiling %s %s" % (name, release), flush=True)
    env, source = environment(cache), os.path.join(cache.root, "module-sources", name)
    p = subprocess.run(["go", "mod", "download", "-json", module + "@" + release], env=env, cwd="/", stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True)
    if p.returncode:
        raise LabError("%s %s cannot be had from the module proxy: %s" % (module, release, (p.stdout + p.stderr)[-1500:]))
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(json.loads(p.stdout)["Dir"], source)
    sh(["chmod", "-R", "u+w", source])
    if name == "nerdctl":
        _without_test_helpers(source)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    sh(["go", "build", "-trimpath", "-ldflags=-s -w " + flags, "-o", path + ".new", package], env=env, cwd=source)
    os.rename(path + ".new", path)
    shutil.rmtree(source)


def _without_test_helpers(source):
    """nerdctl keeps a module for its tests in its tree, which its module archive lacks: without the files that use it."""
    for name in ("testing.go", "testing_linux.go"):
        os.unlink(os.path.join(source, "cmd", "nerdctl", "helpers", name))
    os.makedirs(os.path.join(source, "mod", "tigron"))
    with open(os.path.join(source, "mod", "tigron", "go.mod"), "w") as f:
        f.write("module github.com/containerd/nerdctl/mod/tigron\n\ngo 1.24\n")


def go_plugins(cache):
    """Go plugins of Debian's source that say which version they are, as upstream's releases do: runtimes look at it."""
    release = "v" + DEBIAN_VERSION.split("+")[0]
    out = os.path.join(cache.root, "programs", "go-plugins-" + release)
    if not os.path.exists(out):
        print("compiling the Go plugins " + release, flush=True)
        tree = os.path.join(cache.gopath, "src", overlay.PLUGINS)
        groups = [os.path.join(tree, "plugins", g) for g in ("main", "meta", "ipam")]
        names = {d: g for g in groups for d in os.listdir(g) if d in os.listdir(cache.reference)}
        os.makedirs(out + ".new", exist_ok=True)
        for name, group in sorted(names.items()):
            flags = "-s -w -X %s/pkg/utils/buildversion.BuildVersion=%s" % (overlay.PLUGINS, release)
            sh(["go", "build", "-ldflags=" + flags, "-o", os.path.join(out + ".new", name), "."],
               env=cache.go_env(shimmed=False), cwd=os.path.join(group, name))
        os.rename(out + ".new", out)
    return out
