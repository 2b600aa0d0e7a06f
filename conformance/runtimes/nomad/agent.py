# SPDX-License-Identifier: Apache-2.0
"""One Nomad agent: server and client in one process, or one of both; its HTTP interface; its log."""
import http.client
import json
import os
import re
import signal
import subprocess
import time

from .. import host

CNI_PATH = host.PLUGINS + ":/opt/cni/third"
CNI_CONFIG = "/etc/cni/net.d"
SUBNET6 = "fd00:26::/112"
# What looks for clouds and services that are not here, and waits for them.
ABSENT = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault"
# The parts of a client whose warnings count; the others talk to servers.
ABOUT = ("client.alloc_runner", "client.driver_mgr", "client.fingerprint_mgr.cni_plugins")
ROOT = "/run/lab/nomad"  # of the only agent
WAIT = 60  # seconds until something that has been asked for counts as never happening
# What differs from one run to the next in what an agent says.
RANDOM = ((r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"), (r"CNI-(DN-)?[0-9a-f]+", "CHAIN"),
          (r"(veth|cnibox)[0-9a-f]{4,}", "VETH"), (r"\d+\.\d+\.\d+\.\d+", "ADDRESS"), (r"fd00:[0-9a-f:]+", "ADDRESS"),
          (r"([0-9a-f]{2}:){5}[0-9a-f]{2}", "MAC"), (r"\d+", "N"),
          # Of all that CHECK misses it names what it looks for first.
          (r"(already exists but was misconfigured): .*", r"\1"))


class Agent:
    """A Nomad agent, of which there is one per directory."""

    def __init__(self, executable, directory, level="INFO", **settings):
        self.directory, self.process, self.address = directory, None, settings.pop("address", "127.0.0.1")
        self.command = settings.pop("inside", []) + [executable, "agent", "-config=" + directory + "/config.json"]
        os.makedirs(directory)
        with open(directory + "/config.json", "w") as f:
            json.dump(dict(configuration(directory, self.address, level), **settings), f)

    def start(self):
        """Starts it and waits until it has taken up its allocations, has a leader, and a node that takes work."""
        begun = self.launch()
        wait(lambda: self._is_ready(begun), "a node that is ready", self)
        return self

    def launch(self):
        """Starts it; how long its log was before."""
        with open(self.directory + "/log", "a") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            return log.tell()

    def kill(self):
        """Ends it as a crash does: nothing it would do at its end is done."""
        self._end(signal.SIGKILL)

    def stop(self):
        """Ends it as a service manager does; allocations stay, and it notes their networks (else it does so once a minute)."""
        self._end(signal.SIGTERM)

    def _end(self, number):
        self.process.send_signal(number)
        self.process.wait(WAIT)

    def _is_ready(self, begun):
        if self.process.poll() is not None:
            raise host.RuntimeFailure("the agent ended: " + self.tail())
        try:
            nodes = self.get("/v1/nodes")
            return (any(n["Status"] == "ready" and n["Drivers"]["raw_exec"]["Healthy"] for n in nodes)
                    and any(r["@message"] == "node registration complete" for r in self.said(begun)))
        except (OSError, KeyError, host.RuntimeFailure):
            return False

    def get(self, path):
        """What a GET answers, parsed."""
        return self.ask("GET", path)

    def ask(self, method, path, body=None):
        """One request; what it answers, parsed."""
        connection = http.client.HTTPConnection(self.address, 4646, timeout=15)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise host.RuntimeFailure("%s %s: %d: %s" % (method, path, answer.status, text[:500]))
        return json.loads(text or "null")

    def said(self, begun=0):
        """The records of its log from an offset on."""
        with open(self.directory + "/log", errors="replace") as f:
            f.seek(begun)
            for line in f:
                if line.startswith("{") and line.endswith("}\n"):
                    yield json.loads(line)

    def warnings(self):
        """What a client warned of that is about allocations, each kind once, without what differs from run to run."""
        return sorted({_kind(r) for r in self.said() if r["@level"] in ("warn", "error") and r.get("@module", "").startswith(ABOUT)})

    def tail(self):
        """The end of its log."""
        with open(self.directory + "/log", errors="replace") as f:
            return f.read()[-3000:]


def _kind(record):
    text = "%s %s: %s" % (record["@level"], record["@module"], record["@message"])
    for key in ("error", "err"):
        if record.get(key):
            text += ": %s" % (record[key],)
    for pattern, word in RANDOM:
        text = re.sub(pattern, word, text)
    return text


def configuration(directory, address, level):
    """A server and a client in one agent; what is not about the network is kept small."""
    return {"name": "lab", "data_dir": directory + "/data", "bind_addr": address, "log_level": level, "log_json": True,
            "advertise": {k: address for k in ("http", "rpc", "serf")}, "disable_update_check": True, "ui": {"enabled": False},
            "leave_on_terminate": False, "server": {"enabled": True, "bootstrap_expect": 1, "raft_multiplier": 1},
            "client": client(), "plugin": {"raw_exec": {"config": {"enabled": True}}}}


def client(**more):
    """The client's part; MORE overrides."""
    return dict({"enabled": True, "cni_path": CNI_PATH, "cni_config_dir": CNI_CONFIG, "network_interface": "wan",
                 "bridge_network_subnet_ipv6": SUBNET6, "bridge_network_hairpin_mode": True, "cpu_total_compute": 100000,
                 "memory_total_mb": 100000, "gc_max_allocs": 1000, "gc_disk_usage_threshold": 99, "gc_inode_usage_threshold": 99,
                 "options": {"fingerprint.denylist": ABSENT, "driver.allowlist": "raw_exec"}}, **more)


def wait(condition, what, agent=None, seconds=WAIT):
    """Waits until CONDITION answers something true, which it returns."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise host.RuntimeFailure("waited in vain for %s%s" % (what, "; the agent: " + agent.tail() if agent else ""))
        time.sleep(0.05)
