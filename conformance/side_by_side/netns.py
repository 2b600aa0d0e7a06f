# SPDX-License-Identifier: Apache-2.0
"""Enters network namespaces from this process (Python gained os.setns only in 3.12)."""
import contextlib
import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000


def path(name):
    """The path of a namespace made by `ip netns add`; "host" is the sandbox's own."""
    return "/run/netns/" + name


@contextlib.contextmanager
def inside(name):
    """The calling thread is in namespace NAME for the length of the block."""
    if name == "host":
        yield
        return
    with at(path(name)):
        yield


@contextlib.contextmanager
def at(place):
    """The calling thread is in the namespace of the file PLACE for the length of the block."""
    with open("/proc/thread-self/ns/net") as home, open(place) as there:
        _enter(there)
        try:
            yield
        finally:
            _enter(home)


def _enter(handle):
    if _LIBC.setns(handle.fileno(), _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns: " + os.strerror(ctypes.get_errno()))
