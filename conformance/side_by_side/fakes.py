# SPDX-License-Identifier: Apache-2.0
"""Stand-ins around the plugins: IPAM plugins with a fixed answer, and firewalld's bus.

`fake-ipam` prints ipam.answer (or, for DEL, CHECK and STATUS, ipam.answers.VERB)
and notes the verbs it got in /run/fake-ipam.log, which is part of the state.
"""
import os
import subprocess
import sys
import time

from .chain import FAKE

IPAM = r"""#!/usr/bin/env python3
import json, os, sys
verb = os.environ.get("CNI_COMMAND")
conf = json.load(sys.stdin)
ipam = conf["ipam"]
with open("/run/fake-ipam.log", "a") as f:
    f.write(verb + "\n")
answer = ipam.get("answers", {}).get(verb, ipam.get("answer") if verb == "ADD" else None)
if answer is None:
    sys.exit(0)
if isinstance(answer, str):
    sys.stdout.write(answer)
elif "raw" in answer:
    sys.stdout.write(answer.get("raw", "")); sys.stderr.write(answer.get("stderr", ""))
    sys.exit(answer.get("exit", 0))
else:
    json.dump(answer, sys.stdout)
    sys.exit(1 if "code" in answer else 0)
"""


def install(scenario):
    """Writes the stand-ins; starts the bus if the scenario wants firewalld."""
    os.makedirs(FAKE, exist_ok=True)
    path = os.path.join(FAKE, "fake-ipam")
    with open(path, "w") as f:
        f.write(IPAM)
    os.chmod(path, 0o755)
    if scenario.get("firewalld"):
        _start_bus()


def _start_bus():
    """The fake system bus, in a process that ends with the sandbox."""
    subprocess.Popen([sys.executable, "-m", "conformance.side_by_side.firewalld", "/run/lab/bus"],
                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 5
    while not os.path.exists("/run/lab/bus"):
        if time.monotonic() > deadline:
            raise RuntimeError("the fake bus did not start")
        time.sleep(0.01)
