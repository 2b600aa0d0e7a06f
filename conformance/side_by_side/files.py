# SPDX-License-Identifier: Apache-2.0
"""Files that a plugin could write: all of /run, and what has changed in /etc, /var/lib and /tmp since the sandbox began."""
import os
import stat

# The sandbox's own things below /run.
OWN = ("/run/lab", "/run/netns", "/run/lock")
# Layers that hold what was changed, see `sandbox` and `inside`.
CHANGED = {"/run/lab/e/u": "/etc", "/run/lab/v/u": "/var/lib", "/run/lab/t/u": "/tmp"}


def seen(checkout):
    """Owner, mode and content of every file by path; the lab itself may write below CHECKOUT."""
    out = dict(_below("/run", "/run", OWN))
    for layer, place in CHANGED.items():
        out.update(_below(layer, place, (checkout,)))
    return out


def _below(root, place, left_out):
    for directory, dirs, names in os.walk(root):
        dirs[:] = [d for d in dirs if not (place + os.path.join(directory, d)[len(root):]).startswith(left_out)]
        for name in dirs + names:
            path = os.path.join(directory, name)
            yield place + path[len(root):], _file(path)


def _file(path):
    st = os.lstat(path)
    entry = {"mode": oct(st.st_mode)}
    if st.st_uid or st.st_gid:
        entry["owner"] = "%d:%d" % (st.st_uid, st.st_gid)
    if stat.S_ISLNK(st.st_mode):
        entry["target"] = os.readlink(path)
    elif stat.S_ISREG(st.st_mode):
        entry["content"] = open(path, "rb").read().decode("latin-1")
    return entry
