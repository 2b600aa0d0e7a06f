# SPDX-License-Identifier: Apache-2.0
"""The machine's own tools that the lab calls; scripts/setup installs what is missing."""
import os
import subprocess

from .upstream.debian import LabError

SETUP = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "scripts", "setup")
TOOLS = {"iptables": "iptables", "ip6tables": "iptables", "nft": "nftables", "ip": "iproute2", "conntrack": "conntrack",
         "unshare": "util-linux", "ping": "iputils-ping", "dnsmasq": "dnsmasq-base", "dbus-daemon": "dbus-daemon",
         "sysctl": "procps", "dpkg-deb": "dpkg"}


def install(tools=None):
    """Installs the packages of missing TOOLS."""
    pairs = ["%s:%s" % pair for pair in (tools or TOOLS).items()]
    p = subprocess.run([SETUP] + pairs, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        raise LabError(p.stderr.strip())
