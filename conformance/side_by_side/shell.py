# SPDX-License-Identifier: Apache-2.0
"""Runs the tools by which the lab looks at the kernel. One that fails has seen nothing, so that is no observation."""
import subprocess

MARK = "=====\n"


def printed(*argv):
    """What a tool prints."""
    p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        raise RuntimeError("%s: exit %d: %s" % (" ".join(argv), p.returncode, p.stderr))
    return p.stdout


def together(commands):
    """What each of COMMANDS prints. One process for all of them: starting one from here costs more than most of them."""
    if not commands:
        return []
    script = "\necho =====\n".join("{ %s; } || { echo 'failed: '%s >&2; exit 1; }" % (c, _quoted(c)) for c in commands)
    return printed("sh", "-c", script).split(MARK)


def _quoted(text):
    return "'%s'" % text.replace("'", "'\\''")
