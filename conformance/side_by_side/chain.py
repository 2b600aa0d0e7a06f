# SPDX-License-Identifier: Apache-2.0
"""Runs plugins the way libcni does: name, version, prevResult and capabilities injected."""
import json
import os
import subprocess

FAKE = "/run/lab/fake"  # IPAM plugins that answer what the configuration says
TIMEOUT = 60


class Caller:
    """One set of plugins; remembers results as libcni's cache does."""

    def __init__(self, bindir, results, settings):
        self.bindir, self.results, self.settings = bindir, results, settings

    def call(self, plugin, env, stdin):
        """One plugin run: exit status and what it printed."""
        path = os.path.join(self.bindir, plugin)
        if not os.path.exists(path):
            path = os.path.join(FAKE, plugin)
        full = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        full.update(self.settings)
        full.update({k: v for k, v in env.items() if v is not None})
        try:
            p = subprocess.run([path], env=full, input=stdin.encode("utf-8", "surrogateescape"),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return {"plugin": plugin, "exit": "timeout", "stdout": [], "stderr": ""}
        return {"plugin": plugin, "exit": p.returncode, "stdout": documents(p.stdout.decode("utf-8", "replace")),
                "stderr": p.stderr.decode("utf-8", "replace")}

    def environment(self, verb, step):
        """CNI_* variables of a step; a value of None leaves one out."""
        env = {"CNI_COMMAND": verb, "CNI_CONTAINERID": step["id"], "CNI_NETNS": step["netns"],
               "CNI_IFNAME": step["if"], "CNI_PATH": self.bindir + ":" + FAKE}
        if verb in ("GC", "STATUS", "VERSION"):
            env = {"CNI_COMMAND": verb, "CNI_PATH": env["CNI_PATH"]}
        env.update(step.get("env", {}))
        return env

    def chain(self, verb, step, conf, capabilities):
        """All plugins of a conflist, in the order of the verb; their calls, each when it is done. CHECK goes on behind a plugin
        that complains, other than libcni's: what the plugins behind it say of the same damage is compared, too."""
        key = (conf.get("name"), step["id"], step["if"])
        previous = None if verb == "ADD" else self.results.get(key)
        plugins = conf["plugins"][::-1] if verb == "DEL" else conf["plugins"]
        for plugin in plugins:
            stdin = json.dumps(inject(plugin, conf, capabilities, previous, step.get("add", {})))
            call = self.call(plugin["type"], self.environment(verb, step), stdin)
            yield call
            if call["exit"] != 0 and verb != "CHECK":
                break
            if verb == "ADD":
                previous = call["stdout"][0] if call["stdout"] else None
        else:
            self._remember(verb, key, previous)

    def _remember(self, verb, key, result):
        if verb == "ADD":
            self.results[key] = result
        elif verb == "DEL":
            self.results.pop(key, None)


def inject(plugin, conf, capabilities, previous, extra):
    """A plugin's configuration as libcni hands it over."""
    out = dict(plugin)
    for key in ("name", "cniVersion"):
        if key in conf:
            out[key] = conf[key]
    wanted = {k: v for k, v in capabilities.items() if plugin.get("capabilities", {}).get(k)}
    if wanted:
        out["runtimeConfig"] = wanted
    if previous is not None:
        out["prevResult"] = previous
    out.update(extra)
    return out


def documents(text):
    """The JSON documents on stdout; what does not parse stays text."""
    decoder, out, at = json.JSONDecoder(), [], 0
    text = text.strip()
    while at < len(text):
        try:
            doc, end = decoder.raw_decode(text, at)
        except ValueError:
            return out + [{"unparsable": text[at:]}]
        out.append(doc)
        while end < len(text) and text[end].isspace():
            end += 1
        at = end
    return out
