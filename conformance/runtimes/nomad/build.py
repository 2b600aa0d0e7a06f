# SPDX-License-Identifier: Apache-2.0
"""Nomad, compiled from its Go module into the cache."""
import os
import shutil

from .. import builds
from ...upstream.debian import sh

MODULE = "github.com/hashicorp/nomad"
# The newest release that the module proxy has: since 2.0 Nomad's tags do not fit its module's path. What of Nomad touches
# CNI is the same in 2.0.5, line for line.
VERSION = "v1.11.3"
# Nomad replaces this module by a folder of its repository, which the module's archive has not; so it has to be a version.
API = MODULE + "/api@v0.0.0-20260907080526-08ef8f3d26da"


def ready(cache):
    """The path of the nomad executable, which is compiled when it is not there yet (some minutes)."""
    path = os.path.join(cache.root, "programs", "nomad@" + VERSION, "nomad")
    if not os.path.exists(path):
        print("compiling nomad " + VERSION, flush=True)
        env, source = builds.environment(cache), os.path.join(cache.root, "module-sources", "nomad")
        builds.copy_source(env, MODULE, VERSION, source)
        sh(["go", "mod", "edit", "-dropreplace=%s/api" % MODULE, "-require=" + API], env=env, cwd=source)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        sh(["go", "build", "-p", "2", "-tags", "release", "-trimpath", "-ldflags=-s -w", "-o", path + ".new", "."], env=env, cwd=source)
        os.rename(path + ".new", path)
        shutil.rmtree(source)
    return path
