# SPDX-License-Identifier: Apache-2.0
"""Changes of the sources that are made in a copy, one at a time: what scripts/switched-off and scripts/mutants share."""
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The copy is at HOME/tree; what is built of it, in HOME/target.
HOME = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "mutation"


def environment():
    """What cargo is run with; a change may leave something unused, and nobody debugs it."""
    return dict(os.environ, CARGO_TARGET_DIR=str(HOME / "target"), CARGO_PROFILE_DEV_DEBUG="none",
                RUSTFLAGS="-Aunused -Aunreachable-code")


def copy_sources(to):
    """The tracked files, as they are in the working tree. What is put back is newer than what was built of it: cargo looks at
    times, and would go on with the change that was there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    for name in filter(None, listed.decode().split("\0")):
        source, target = ROOT / name, to / name
        if source.is_file() and not (target.is_file() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def changed(tree, file, there, instead):
    """The copy at TREE with one change; the next call takes it back."""
    copy_sources(tree)
    (tree / file).write_text((tree / file).read_text().replace(there, instead))


def lost(changes):
    """Of (name, file, what stands there), those whose code is not there exactly once."""
    return ["%s: this is not once in %s: %s" % (name, file, there) for name, file, there in changes
            if not (ROOT / file).is_file() or (ROOT / file).read_text().count(there) != 1]


def builds(changes):
    """Whether the sources build with these (name, file, what stands there, what instead), as many at once as leave one another's
    places alone; prints what does not. One that does not build proves nothing."""
    tree, left = HOME / "tree", list(changes)
    while left:
        copy_sources(tree)
        made, later = [], []
        for change in left:
            _, file, there, instead = change
            text = (tree / file).read_text()
            if text.count(there) == 1:
                (tree / file).write_text(text.replace(there, instead))
                made.append(change)
            else:
                later.append(change)
        check = subprocess.run(["cargo", "check", "--workspace", "--quiet"], cwd=tree, env=environment(), stderr=subprocess.PIPE, text=True)
        if check.returncode != 0:
            print("does not build with all of: %s\n%s" % (", ".join(change[0] for change in made), check.stderr), file=sys.stderr)
            return False
        left = later
    copy_sources(tree)
    return True


def choice(entries, args):
    """The entries that a command line asks for: all, each N-th, or the named ones."""
    if args[:1] == ["--every"] and args[2:3] == ["--seed"]:
        every, seed = int(args[1]), int(args[3])
        return entries[seed % every::every]
    return [entry for entry in entries if not args or entry[0] in args]
