#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A third party's plugin that is chained last, as consul-cni is: it notes whom it was called for and passes the result on.

Called by the name of flaky it fails the first two times that it adds a container.
"""
import json
import os
import sys

NOTES = "/run/lab/third"


def main():
    """One call by the CNI protocol; without a verb it says its version."""
    verb, name = os.environ.get("CNI_COMMAND"), os.path.basename(sys.argv[0])
    if not verb:
        print("CNI %s plugin v1.9.0\nCNI protocol versions supported: 0.3.0, 0.3.1, 0.4.0, 1.0.0" % name)
        return
    if verb == "VERSION":
        print(json.dumps({"cniVersion": "1.0.0", "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0"]}))
        return
    conf, container = json.load(sys.stdin), os.environ["CNI_CONTAINERID"]
    os.makedirs(NOTES, exist_ok=True)
    path = os.path.join(NOTES, container)
    if verb == "ADD":
        add(name, conf, path)
    elif verb == "DEL" and os.path.exists(path):
        os.unlink(path)


def add(name, conf, path):
    """Notes the arguments and the address; fails when it is to."""
    if name == "flaky" and _tries(path) < 3:
        print(json.dumps({"code": 999, "msg": "not yet"}))
        sys.exit(1)
    with open(path, "w") as f:
        json.dump({"args": os.environ.get("CNI_ARGS", ""), "ips": conf["prevResult"]["ips"]}, f)
    print(json.dumps(conf["prevResult"]))


def _tries(path):
    """How often this container was tried, this time included."""
    with open(path + ".tries", "a+") as f:
        f.write(".")
        return f.tell()


if __name__ == "__main__":
    main()
