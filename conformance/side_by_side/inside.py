# SPDX-License-Identifier: Apache-2.0
"""Runs one scenario inside a sandbox and prints its record as JSON.

    python3 -m conformance.side_by_side.inside < JOB
JOB is {"scenario": ..., "bins": {"a": DIR, "b": DIR}, "by": RULE}; RULE says
which set of plugins does a step (see `chooser`).
"""
import concurrent.futures
import json
import os
import subprocess
import sys

from . import fakes, netns, observe, traffic
from .chain import Caller
from .compare import START

BIN = {"a": "/run/lab/bin", "b": "/run/lab/other"}


class Run:
    """One scenario under way."""

    def __init__(self, job):
        self.scenario = job["scenario"]
        results = {}
        self.callers = {}
        for key, directory in job["bins"].items():
            os.makedirs(BIN[key])
            _must("mount --bind '%s' %s" % (directory, BIN[key]))
            self.callers[key] = Caller(BIN[key], results, self.scenario.get("env", {}))
        self.choose = chooser(job.get("by", "a"))
        self.namespaces = ["host"]
        # /tmp as /etc and /var/lib are already: a layer in memory has what is changed there.
        _must("mkdir -p /run/lab/t/u /run/lab/t/w && mount -t overlay -o lowerdir=/tmp,upperdir=/run/lab/t/u,workdir=/run/lab/t/w overlay /tmp")
        self.observer = observe.Observer()

    def observe(self):
        """The state of everything that exists."""
        return self.observer.state(self.namespaces)

    def run(self):
        """Prepares the host, does the steps; the list of their records."""
        self._prepare()
        out = []
        steps = list(map(expand, self.scenario["steps"]))
        if [s.get("do") for s in steps[:2]] == ["ADD", "DEL"]:
            # An ADD that may fail: then this is what undoing it leads back to.
            out.append({"step": START, "state": self.observe()})
        for step in steps:
            record = {"step": title(step)}
            parts = []
            record.update(self._step(step, parts))
            if step.get("observe", True):
                record["state"] = self.observe()
            out += [{"step": record["step"], "part": plugin, "state": state} for plugin, state in parts] + [record]
        return out

    def _prepare(self):
        _must("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0 net.ipv6.conf.default.dad_transmits=0")
        for name in self.scenario["containers"]:
            _must("ip netns add %s && ip -n %s link set lo up" % (name, name) if name == "out"
                  else "ip netns add %s" % name)
            _must("ip netns exec %s sysctl -qw net.ipv6.conf.default.dad_transmits=0" % name)
            self.namespaces.append(name)
        fakes.install(self.scenario)
        for command in self.scenario["host"]:
            _must(command)

    def _step(self, step, parts=None):
        """Does a step; PARTS gets (plugin, state) after each plugin of a DEL but the last."""
        if "sh" in step:
            with netns.inside(step.get("in", "host")):
                p = subprocess.run(["sh", "-c", step["sh"]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if p.returncode and not step.get("may_fail"):
                raise RuntimeError("%s: exit %d: %s" % (step["sh"], p.returncode, p.stdout))
            return {"output": p.stdout if step.get("show") else ""}
        if "connect" in step:
            return {"traffic": traffic.connect(step["connect"])}
        if "parallel" in step:
            with concurrent.futures.ThreadPoolExecutor(len(step["parallel"])) as pool:
                return {"calls": sum((r["calls"] for r in pool.map(self._step, map(expand, step["parallel"]))), [])}
        caller = self.callers[self.choose(step)]
        if "call" in step:
            env = caller.environment(step["do"], step)
            call = caller.call(step["call"], env, step["stdin"])
            return {"calls": [_told(call, step, env, step["stdin"])]}
        conf = self.scenario["confs"][step.get("conf", "")]
        capabilities = step.get("caps", self.scenario.get("caps", {}))
        env, calls = caller.environment(step["do"], step), []
        for call in caller.chain(step["do"], step, conf, capabilities):
            # What the plugins behind undid is not to be seen any more when the interface is gone.
            if step["do"] == "DEL" and parts is not None and step.get("observe", True) and not call["exit"] and len(calls) + 1 < len(conf["plugins"]):
                parts.append((call["plugin"], self.observe()))
            calls.append(_told(call, step, env, conf.get("name")))
        return {"calls": calls}


def _told(call, step, env, network):
    """A call with its verb and whose attachment it was about. stderr is for people, apart from the about text and what a
    step asks for."""
    if not step.get("stderr"):
        del call["stderr"]
    whose = [str(network), env.get("CNI_CONTAINERID"), env.get("CNI_IFNAME")]
    return dict(call, verb=env.get("CNI_COMMAND"), whose=whose)


def expand(step):
    """A step in its long form: "ADD c1 eth1" or a dictionary."""
    if isinstance(step, str):
        words = step.split()
        step = dict(zip(("do", "c", "if"), words))
    step = dict(step)
    step.setdefault("c", "c1")
    step.setdefault("if", "eth0")
    step.setdefault("id", step["c"])
    step.setdefault("netns", netns.path(step["c"]))
    return step


def title(step):
    """A short name for a step in reports."""
    if "sh" in step:
        return "sh " + step["sh"]
    if "parallel" in step:
        return "all at once: " + ", ".join(map(title, map(expand, step["parallel"])))
    if "connect" in step:
        return "connect %(from)s to %(to)s:%(port)s" % step["connect"]
    return " ".join(filter(None, (step["do"], step.get("call"), step["c"], step["if"], step.get("conf"))))


def chooser(rule):
    """Who does a step: "a"; {"ADD": "a", "": "b"} by verb; {"c1": "a", "c2": "b"} by container; a step's own `by` is first."""
    if isinstance(rule, str):
        return lambda step: step.get("by", rule)
    return lambda step: step.get("by") or rule.get(step["do"]) or rule.get(step["c"]) or rule.get("", "a")


def _must(command):
    p = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if p.returncode:
        raise RuntimeError("%s: exit %d: %s" % (command, p.returncode, p.stdout))


if __name__ == "__main__":
    JOB = json.load(sys.stdin)
    json.dump(observe.machine_facts() if JOB.get("facts") else Run(JOB).run(), sys.stdout)
