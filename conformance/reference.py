# SPDX-License-Identifier: Apache-2.0
"""Prints the directory with Debian's Go plugins, after fetching them if need be: python3 -m conformance.reference

With --version: which plugins they are.
"""
import contextlib
import sys

from .upstream.cache import DEBIAN_VERSION, Cache


def main():
    """Progress goes to stderr, so that the answer is all there is on stdout."""
    if "--version" in sys.argv[1:]:
        print("Debian's containernetworking-plugins " + DEBIAN_VERSION)
        return
    with contextlib.redirect_stdout(sys.stderr):
        reference = Cache().ready().reference
    print(reference)


if __name__ == "__main__":
    main()
