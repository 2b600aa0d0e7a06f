# SPDX-License-Identifier: Apache-2.0
"""What the plugins under test keep below /run/cnibox, which the Go plugins have nothing to compare with.

It is no difference as long as it is what it is meant to be: directories and files of root's alone under known names, no
links, and with the last attachment all of it goes but host-local's index, what the kernel was found to be, and what long chains hold.
"""
import re

from .compare import Difference

ROOT = "/run/cnibox"
DIRECTORY, FILE = "0o40700", "0o100600"
NAME = r"[A-Za-z0-9_.:%+-]+"
KNOWN = {
    DIRECTORY: re.compile(r"(/(attachments(/[0-9a-f]{2})?|addresses(/%s)?|host-local|dhcp))?" % NAME),
    FILE: re.compile(r"/(attachments/[0-9a-f]{2}/%s|addresses/%s/[0-9a-f.:]+|host-local/%s|dhcp/%s|kernel|inventory-%s-\d+-\d+)" % ((NAME,) * 5)),
}
# What no attachment is behind.
LASTING = re.compile(r"(/host-local(/.*)?|/kernel|/inventory-.*)?$")


def problems(steps, alone):
    """What is wrong with the notes in a record; ALONE if nobody else's plugins had a part in it."""
    out, living = [], set()
    for n, step in enumerate(steps, 1):
        _follow(living, step)
        for path, entry in step.get("state", {}).get("files", {}).items():
            if path.startswith(ROOT):
                name = path[len(ROOT):]
                known = KNOWN.get(entry["mode"])
                if not known or not known.fullmatch(name) or "owner" in entry:
                    out.append(Difference("%d %s/notes/%s" % (n, step["step"], path), entry, "a known name, of root's alone"))
                elif alone and not living and not LASTING.fullmatch(name):
                    out.append(Difference("%d %s/notes/%s" % (n, step["step"], path), entry, "nothing, when all is deleted"))
    return out


def _follow(living, step):
    """Which plugins' attachments LIVING has after a step: an ADD makes one, if it fails too, until the plugin's DEL succeeds."""
    for call in step.get("calls", []):
        verb, who = call.get("verb"), (call["plugin"],) + tuple(call.get("whose", ()))
        if verb == "ADD":
            living.add(who)
        elif verb == "DEL" and call.get("exit") == 0:
            living.discard(who)
