# SPDX-License-Identifier: Apache-2.0
"""Programs that Debian does not package, built from their Go modules into the cache, and Go plugins that say their version.

Each module is copied out of the module cache and built as the main module, so that its own go.sum and replacements hold.
"""
import glob
import json
import os
import re
import shutil
import subprocess
from typing import Callable, NamedTuple, Optional

from ..upstream import overlay
from ..upstream.cache import DEBIAN_VERSION
from ..upstream.debian import LabError, sh
from ..upstream.toolchain import goroot


class Program(NamedTuple):
    """Where a program comes from, and what its build is told."""

    module: str
    release: str
    package: str                              # inside the module
    says: Optional[str] = None                # the variable that tells its version, where the linker has to set it
    tags: str = ""
    fit: Optional[Callable[[dict, str], None]] = None  # makes a module's archive a tree that builds: (environment, source)

    def flags(self):
        """For the linker."""
        return "-s -w" + (" -X %s=%s" % (self.says, self.release) if self.says else "")


def _without_test_helpers(_, source):
    """nerdctl keeps a module for its tests in its tree, which its module archive lacks: without the files that use it."""
    for name in ("testing.go", "testing_linux.go"):
        os.unlink(os.path.join(source, "cmd", "nerdctl", "helpers", name))
    os.makedirs(os.path.join(source, "mod", "tigron"))
    with open(os.path.join(source, "mod", "tigron", "go.mod"), "w") as f:
        f.write("module github.com/containerd/nerdctl/mod/tigron\n\ngo 1.24\n")


def _with_released_staging(env, source):
    """Kubernetes' modules below staging, which its module archive lacks, have releases of their own: v0.N.x of its v1.N.x."""
    with open(os.path.join(source, "go.mod"), encoding="utf-8") as f:
        staged = re.findall(r"^\t(\S+) => \./staging/", f.read(), re.M)
    release = KUBERNETES.replace("v1.", "v0.")
    sh(["go", "mod", "edit"] + ["-replace={0}={0}@{1}".format(m, release) for m in staged], env=env, cwd=source)


def _with_released_cri_client(env, source):
    """CRI-O requires a candidate that the module proxy has not; its release is the same but for the name."""
    sh(["go", "mod", "edit", "-require=k8s.io/cri-client@v0.36.0"], env=env, cwd=source)


CONTAINERD, KUBERNETES = "v2.3.7", "v1.37.2"
_CONTAINERD = Program("github.com/containerd/containerd/v2", CONTAINERD, "", "github.com/containerd/containerd/v2/version.Version")
_BUILDKIT = Program("github.com/moby/buildkit", "v0.34.2", "", "github.com/moby/buildkit/version.Version")
PROGRAMS = {
    "crictl": Program("sigs.k8s.io/cri-tools", "v1.36.0", "./cmd/crictl", "sigs.k8s.io/cri-tools/pkg/version.Version"),
    "nerdctl": Program("github.com/containerd/nerdctl/v2", "v2.3.5", "./cmd/nerdctl",
                       "github.com/containerd/nerdctl/v2/pkg/version.Version", fit=_without_test_helpers),
    "containerd": _CONTAINERD._replace(package="./cmd/containerd"),
    "containerd-shim-runc-v2": _CONTAINERD._replace(package="./cmd/containerd-shim-runc-v2"),
    "ctr": _CONTAINERD._replace(package="./cmd/ctr"),
    "buildkitd": _BUILDKIT._replace(package="./cmd/buildkitd"),
    "buildctl": _BUILDKIT._replace(package="./cmd/buildctl"),
    "kubelet": Program("k8s.io/kubernetes", KUBERNETES, "./cmd/kubelet", "k8s.io/component-base/version.gitVersion", fit=_with_released_staging),
    "crio": Program("github.com/cri-o/cri-o", "v1.36.1", "./cmd/crio", tags="containers_image_openpgp exclude_graphdriver_btrfs",
                    fit=_with_released_cri_client),
}


def version(program):
    """The version of a program that is built here."""
    return PROGRAMS[program].release.lstrip("v")


def programs(cache, *names):
    """The directory with the named programs, each built when it is not there yet."""
    for name in names:
        path = os.path.join(_directory(cache, name), name)
        if not os.path.exists(path):
            _build(cache, name, path)
    return ":".join(sorted({_directory(cache, name) for name in names}))


def _directory(cache, name):
    program = PROGRAMS[name]
    return os.path.join(cache.root, "programs", "%s@%s" % (program.module.replace("/", "_"), program.release))


def environment(cache):
    """The environment of Go runs that build a module, with a cache of their own."""
    root = goroot(cache.root)
    env = {k: v for k, v in os.environ.items() if not k.startswith("CNI_")}
    env.update(PATH=root + "/bin:" + env.get("PATH", ""), GOROOT=root, GOTOOLCHAIN="local", CGO_ENABLED="0", GO111MODULE="on", GOWORK="off",
               GOFLAGS="-buildvcs=false -mod=mod", GOCACHE=os.path.join(cache.root, "gocache"))
    env.setdefault("GOMODCACHE", os.path.join(cache.root, "modcache"))
    return env


def _build(cache, name, path):
    program = PROGRAMS[name]
    print("compiling %s %s" % (name, program.release), flush=True)
    env, source = environment(cache), os.path.join(cache.root, "module-sources", name)
    copy_source(env, program.module, program.release, source)
    if program.fit:
        program.fit(env, source)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    sh(["go", "build", "-trimpath", "-tags", program.tags, "-ldflags=" + program.flags(), "-o", path + ".new", program.package],
       env=env, cwd=source)
    os.rename(path + ".new", path)
    shutil.rmtree(source)


def pinns(cache):
    """The program that CRI-O keeps namespaces alive with, which is in C; statically linked, as upstream has it."""
    path = os.path.join(_directory(cache, "crio"), "pinns")
    if not os.path.exists(path):
        env, source = environment(cache), os.path.join(cache.root, "module-sources", "pinns")
        copy_source(env, PROGRAMS["crio"].module, PROGRAMS["crio"].release, source)
        sh(["cc", "-std=c99", "-O2", "-static", "-o", path + ".new"] + glob.glob(source + "/pinns/src/*.c"), env=env, cwd=source)
        os.rename(path + ".new", path)
        shutil.rmtree(source)
    return path


def copy_source(env, module, release, source):
    """A copy that can be changed of what the module proxy has."""
    p = subprocess.run(["go", "mod", "download", "-json", module + "@" + release], env=env, cwd="/", stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True)
    if p.returncode:
        raise LabError("%s %s cannot be had from the module proxy: %s" % (module, release, (p.stdout + p.stderr)[-1500:]))
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(json.loads(p.stdout)["Dir"], source)
    sh(["chmod", "-R", "u+w", source])


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
