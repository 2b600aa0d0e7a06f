# SPDX-License-Identifier: Apache-2.0
"""Real runtimes, unpacked from Debian's packages, drive the plugins: libcni, containerd, podman."""
