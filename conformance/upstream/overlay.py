# SPDX-License-Identifier: Apache-2.0
"""A scratch copy of upstream's packages whose cmdAdd and friends run an executable.

In the copy cmdAdd, cmdDel, cmdCheck and cmdStatus are renamed, and
shim/cmd_test.go.tmpl puts functions in their place that run DIR/<plugin> with
the CNI environment and the spec's stdin. Every edit is counted: when upstream
changes, this fails instead of quietly testing nothing.
"""
import glob
import hashlib
import os
import re
import shutil

from .debian import LabError

HERE = os.path.dirname(os.path.abspath(__file__))
SHIM = os.path.join(HERE, "shim")
PLUGINS = "github.com/containernetworking/plugins"
CNI = "github.com/containernetworking/cni"

SUITES = {
    "bridge": "plugins/main/bridge", "dummy": "plugins/main/dummy",
    "host-device": "plugins/main/host-device", "ipvlan": "plugins/main/ipvlan",
    "loopback": "plugins/main/loopback", "macvlan": "plugins/main/macvlan",
    "ptp": "plugins/main/ptp", "tap": "plugins/main/tap", "vlan": "plugins/main/vlan",
    "dhcp": "plugins/ipam/dhcp", "host-local": "plugins/ipam/host-local",
    "static": "plugins/ipam/static", "bandwidth": "plugins/meta/bandwidth",
    "firewall": "plugins/meta/firewall", "portmap": "plugins/meta/portmap",
    "sbr": "plugins/meta/sbr", "tuning": "plugins/meta/tuning", "vrf": "plugins/meta/vrf",
    "integration": "integration",
}


def stamp():
    """A digest of everything the compiled suites depend on, so that an edit recompiles."""
    h = hashlib.sha256()
    for f in sorted(glob.glob(SHIM + "/**/*", recursive=True)) + [os.path.abspath(__file__)]:
        if os.path.isfile(f):
            h.update(os.path.relpath(f, HERE).encode() + b"\0" + open(f, "rb").read())
    return h.hexdigest()


def make(gopath, overlay):
    """Copies upstream's two trees from GOPATH to OVERLAY and puts the shim in."""
    shutil.rmtree(overlay, ignore_errors=True)
    for imp in (PLUGINS, CNI):
        shutil.copytree(os.path.join(gopath, "src", imp), os.path.join(overlay, "src", imp), symlinks=True)
    invoke = os.path.join(overlay, "src", CNI, "pkg/invoke")
    shutil.copy(SHIM + "/invoke_hook.go.tmpl", invoke + "/zz_cnishim_hook.go")
    _edit(invoke + "/raw_exec.go", r"(?m)^(func \(e \*RawExec\) ExecPlugin\(.*\{)$",
          r"\1\n\tif CNIShimOnExec != nil {\n\t\tCNIShimOnExec(pluginPath)\n\t}")
    for p in ("shim", "cnitool"):
        shutil.copytree(os.path.join(SHIM, p), os.path.join(overlay, "src", "cnishim", p))
    for suite, rel in SUITES.items():
        _package(suite, os.path.join(overlay, "src", PLUGINS, rel))


def _package(suite, directory):
    """Rewrites one plugin's package and adds the shim's files to it."""
    found, versions, packages = set(), set(), {"main"} - ({"main"} if suite == "integration" else set())
    for f in sorted(glob.glob(directory + "/*.go")):
        src = open(f).read()
        if f.endswith("_test.go"):
            new = _rewrite_test(suite, src)
            if new != src:
                packages.add(re.search(r"(?m)^package (\w+)", new).group(1))
        else:
            versions.update(re.findall(r"(version\.[A-Z]\w*(?:\([^)]*\))?), bv\.BuildString", src))
            new = _rename_commands(src, found)
        if new != src:
            open(f, "w").write(new)
    for package in packages:
        name = "zz_cnishim_alias_%s_test.go" % package.replace("_test", "_ext")
        _template("alias_test.go.tmpl", os.path.join(directory, name), {"PACKAGE": package})
    if suite != "integration":
        _add_commands(suite, directory, found, versions)


def _rename_commands(src, found):
    """cmdAdd -> upstreamCmdAdd and so on; adds the names seen to FOUND."""
    def rename(m):
        found.add(m.group(1))
        return "func upstreamCmd" + m.group(1) + m.group(2)
    return re.sub(r"(?m)^func cmd(Add|Del|Check|Status|GC)(\(\w+ \*skel\.CmdArgs\) error \{)", rename, src)


def _rewrite_test(suite, src):
    """Test code that builds or finds plugins itself is pointed at the directory under test."""
    edits = [("gexec.Build(", "cniShimBuild("),
             ("RegisterFailHandler(Fail)", "RegisterFailHandler(cniShimFail)"),
             ("exec.Command(pathToLoPlugin", "cniShimCommand(pathToLoPlugin")]
    if suite == "integration":
        edits += [('filepath.Abs("../bin")', 'cniShimBinDirErr("../bin")'),
                  ('exec.LookPath("cnitool")', 'cniShimCountLookPath(exec.LookPath("cnitool"))')]
    if suite == "firewall":
        edits.append(("return busAddr, cmd", "cniShimBusAddr = busAddr\n\treturn busAddr, cmd"))
    if suite == "dhcp":
        # The server starts beside a spec that swaps os.Stdout for a pipe, reads it to its end, and waits for ever when
        # the server was late and has got the pipe.
        edits.append(("s.cmd.Stdout = os.Stdout", "s.cmd.Stdout = os.Stderr"))
    for old, new in edits:
        src = src.replace(old, new)
    return src


def _add_commands(suite, directory, found, versions):
    """The replacements for the renamed functions, and the plugin's extra file if it has one."""
    if not {"Add", "Del", "Check"} <= found:
        raise LabError("%s: found only cmd%s to rename; has upstream changed?" % (suite, sorted(found)))
    if len(versions) != 1:
        raise LabError("%s: CNI versions in main(): found %s" % (suite, sorted(versions)))
    sub = {"PACKAGE": "main", "PLUGIN": suite, "VERSIONS": versions.pop()}
    for opt, verb in (("Status", "STATUS"), ("GC", "GC")):
        text = 'func cmd%s(args *skel.CmdArgs) error { return cniShimExec("%s", args) }' % (opt, verb)
        sub[verb] = text if opt in found else ""
    _template("cmd_test.go.tmpl", directory + "/zz_cnishim_cmd_test.go", sub)
    extra = "extra-%s_test.go.tmpl" % suite
    if os.path.exists(os.path.join(SHIM, extra)):
        _template(extra, directory + "/zz_cnishim_extra_test.go", sub)


def _edit(path, pattern, repl):
    """Exactly one replacement, or upstream has changed."""
    new, n = re.subn(pattern, repl, open(path).read())
    if n != 1:
        raise LabError("%s: expected one place matching %r, found %d" % (path, pattern, n))
    open(path, "w").write(new)


def _template(name, dest, sub):
    text = open(os.path.join(SHIM, name)).read()
    for k, v in sub.items():
        text = text.replace("@%s@" % k, v)
    open(dest, "w").write(text)
