"""A ``hadoop`` command that works on a local folder."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

# What of ``hadoop fs`` the client uses, with HDFS paths under a folder; every call is noted in a log.
FAKE = """#!{python} -S
import os, shutil, sys
root, log = {root!r}, {log!r}
here = lambda path: root + path
copy_tree = lambda a, b: shutil.copytree(a, b + "/" + os.path.basename(a) if os.path.isdir(b) else b)
words = [w for w in sys.argv[1:] if not w.startswith("-D")]
with open(log, "a") as out:
    out.write(repr(sys.argv[1:]) + "\\n")
command, options, paths = words[1], [w for w in words[2:] if w.startswith("-")], [w for w in words[2:] if w[0] != "-"]
if os.path.exists(root + "/broken") and command in ("-put", "-get"):
    sys.exit("put: connection refused")
if command == "-test":
    sys.exit(not (os.path.isdir if "-d" in options else os.path.exists)(here(paths[0])))
if command == "-mkdir":
    os.makedirs(here(paths[0]), exist_ok=True)
elif command == "-cat":
    sys.stdout.write(open(here(paths[0])).read())
elif command == "-put":
    (copy_tree if os.path.isdir(paths[0]) else shutil.copy)(paths[0], here(paths[1]))
elif command == "-get":
    (copy_tree if os.path.isdir(here(paths[0])) else shutil.copy)(here(paths[0]), paths[1])
elif command == "-rm":
    shutil.rmtree(here(paths[0])) if "-r" in options else os.remove(here(paths[0]))
elif command == "-mv":
    os.rename(here(paths[0]), here(paths[1]))
elif command == "-ls":
    def show(path):
        for name in sorted(os.listdir(here(path))):
            inner = path.rstrip("/") + "/" + name
            is_dir = os.path.isdir(here(inner))
            minute = int(os.path.getmtime(here(inner))) % 60
            print("d" * is_dir + "rw-r--r--   3 me us  7 2020-01-02 03:%02d %s" % (minute, inner))
            if is_dir and "-R" in options:
                show(inner)
    print("Found items")
    show(paths[0])
"""


def install(home: Path, remote: Path, log: Path) -> str:
    """Write the command into ``home``/bin; HDFS is the folder ``remote``, and every call becomes a line of ``log``."""
    command = home / "bin" / "hadoop"
    command.parent.mkdir(parents=True)
    command.write_text(FAKE.format(python=sys.executable, root=str(remote), log=str(log)))
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return str(home)
