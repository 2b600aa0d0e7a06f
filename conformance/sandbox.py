# SPDX-License-Identifier: Apache-2.0
"""A throw-away place to run plugins in: own pid, mount and network namespaces.

/run is empty, /etc and /var/lib are writable copies in memory; nothing that
happens inside reaches the machine, and everything ends with the process.
"""

UNSHARE = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private"]

# Run by sh with the working directory and the command as arguments.
SETUP = r"""
set -e
umask 0
mount -t proc proc /proc
mount -t sysfs sysfs /sys 2>/dev/null || true
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/lock /run/cni /run/lab/e/u /run/lab/e/w /run/lab/v/u /run/lab/v/w
mount -t overlay -o lowerdir=/etc,upperdir=/run/lab/e/u,workdir=/run/lab/e/w overlay /etc
mount -t overlay -o lowerdir=/var/lib,upperdir=/run/lab/v/u,workdir=/run/lab/v/w overlay /var/lib
rm -rf /etc/cni /var/lib/cni
mkdir -p /etc/cni /var/lib/cni
ip link set lo up
cd "$1"; shift; exec "$@"
"""


def command(cwd, argv):
    """The command line that runs ARGV in CWD inside a fresh sandbox (as root)."""
    return UNSHARE + ["/bin/sh", "-c", SETUP, "sh", cwd] + argv
