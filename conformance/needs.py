# SPDX-License-Identifier: Apache-2.0
"""The machine's own tools that the lab calls; what is missing is installed with apt-get."""
import os
import shutil
import subprocess

from .upstream.debian import LabError

TOOLS = {"iptables": "iptables", "ip6tables": "iptables", "nft": "nftables", "ip": "iproute2", "conntrack": "conntrack",
         "unshare": "util-linux", "ping": "iputils-ping", "dnsmasq": "dnsmasq-base", "dbus-daemon": "dbus-daemon",
         "sysctl": "procps", "dpkg-deb": "dpkg"}


def install(tools=None):
    """Installs the packages of missing TOOLS; nothing is started, nothing else upgraded."""
    missing = sorted({p for t, p in (tools or TOOLS).items() if not shutil.which(t)})
    if not missing:
        return
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1")
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends"] + missing
    for attempt in (["apt-get", "update", "-q"], None):
        p = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if p.returncode == 0:
            return
        if attempt:
            subprocess.run(attempt, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    raise LabError("apt-get install %s: %s" % (" ".join(missing), p.stdout[-1000:]))
