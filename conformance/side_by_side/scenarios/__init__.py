# SPDX-License-Identifier: Apache-2.0
"""What is run: lists of scenarios, data only.

A scenario is a dictionary:
  name        group/what, unique
  confs       conflists by label; "" is the default one
  steps       see below
  host        shell commands that prepare the host
  caps        capability arguments (runtimeConfig), given to plugins that declare them
  needs       features (observe.py has them) that a kernel may lack: then it runs in the full kernel
  env         environment of all plugins
  known       the name by which known-differences.md knows it, if not its own
  firewalld   start a fake firewalld
  swap        also played with ADD by one set of plugins and the rest by the other

A step is "VERB container [ifname]" or a dictionary with do, c, if, and
optionally by, id, netns, env (None removes a variable), conf (label), caps, add
(keys put into every plugin's configuration); `call` and `stdin` run one plugin
with that very text. {"sh": command, "in": namespace} runs a command,
{"connect": {...}} sends packets (traffic.py), {"parallel": [steps]} does steps at
the same time.
"""
import importlib
import json
import pkgutil

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
LIFE = ["VERSION", "STATUS", "ADD c1", "CHECK c1", "ADD c1", "DEL c1", "DEL c1", "GC"]
SHORT = ["ADD c1", "CHECK c1", "DEL c1", "DEL c1"]
FAILS = ["ADD c1", "DEL c1", "DEL c1"]
# An outside machine, reached through the host's interface "wan".
OUTSIDE = [
    "ip link add wan type veth peer name eth0 netns out && ip link set wan up",
    "ip addr add 198.51.100.1/24 dev wan && ip -6 addr add 2001:db8:99::1/64 dev wan nodad",
    "ip -n out link set eth0 up && ip -n out addr add 198.51.100.2/24 dev eth0 && ip -n out route add default via 198.51.100.1",
    "ip -n out -6 addr add 2001:db8:99::2/64 dev eth0 nodad && ip -n out -6 route add default via 2001:db8:99::1",
]


def conflist(plugins, version="1.0.0", net="net1"):
    """A conflist; a version or name of None is left out."""
    out = {"plugins": plugins}
    if version is not None:
        out["cniVersion"] = version
    if net is not None:
        out["name"] = net
    return out


def scenario(name, plugins, steps=SHORT, version="1.0.0", net="net1", **more):
    """A scenario with one conflist (and those in `confs`)."""
    confs = {"": conflist(plugins, version, net)}
    confs.update(more.pop("confs", {}))
    out = {"name": name, "confs": confs, "steps": list(steps), "host": [], "needs": []}
    out.update(more)
    out["containers"] = sorted(set(_containers(out["steps"])))
    if "out" in out["containers"]:
        out["host"] = OUTSIDE + out["host"]
    return out


# Values of a wrong type for what every configuration may have.
COMMON = [("type", 5), ("capabilities", {"mac": 1}), ("ipam", "x"), ("ipam", []), ("ipam.type", 5), ("dns", 5), ("dns.nameservers", "x"),
          ("dns.search", [1]), ("prevResult", []), ("prevResult", "x"), ("runtimeConfig", 5), ("args", 5)]


def wrong_types(name, plugin, values, verbs=("ADD", "CHECK", "DEL"), **more):
    """Calls of one plugin with a wrong value each; VALUES are pairs of a dotted path and a value. Nothing happens.
    (STATUS is not among them: the reference has none.)"""
    steps = []
    for path, value in COMMON + values:
        conf = dict(plugin, cniVersion="1.1.0", name="net1")
        *outer, last = path.split(".")
        part = conf
        for key in outer:
            part[key] = part = dict(part.get(key, {}))
        part[last] = value
        steps += [{"do": v, "call": plugin["type"], "stdin": json.dumps(conf), "conf": "%s=%s" % (path, json.dumps(value)), "observe": False}
                  for v in verbs]
    return scenario(name, [], steps + [{"sh": "true"}], **more)


def _containers(steps):
    for step in steps:
        if isinstance(step, str):
            words = step.split()
            yield words[1] if len(words) > 1 else "c1"
        elif "parallel" in step:
            yield from _containers(step["parallel"])
        elif "connect" in step:
            yield from {step["connect"]["from"], step["connect"]["server"]} - {"host"}
        elif "sh" in step:
            yield from {step.get("in", "host")} - {"host"}
        else:
            yield step.get("c", "c1")


def everything():
    """All scenarios of all modules in this package; containers without duplicates, names unique."""
    out = []
    for module in pkgutil.iter_modules(__path__):
        out += importlib.import_module(__name__ + "." + module.name).SCENARIOS
    names = [s["name"] for s in out]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise ValueError("scenarios of the same name: %s" % sorted(twice))
    return out
