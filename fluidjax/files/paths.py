"""Names from files and programs as paths, confined to the directory they belong to."""

from __future__ import annotations

import os

from fluidjax.base.errors import explain
from fluidjax.files.errors import UnsafeNameError

RESERVED = ".fluidjax-"  # the prefix of the folders in which a save is prepared


def inside(directory: str, name: str) -> str:
    """``directory/name``; UnsafeNameError if that is not a file below the directory after following symbolic links.

    Fluid allows ``/`` in variable names; such variables are stored in subdirectories.
    """
    parts = name.split("/")
    bad = not name or "\0" in name or "\\" in name or os.path.isabs(name)
    if bad or any(part in ("", ".", "..") or part.startswith(RESERVED) for part in parts):
        raise _unsafe(directory, name)
    path = os.path.join(directory, name)
    root = os.path.realpath(directory)
    parent = os.path.realpath(os.path.dirname(path))
    if parent != root and not parent.startswith(root.rstrip(os.sep) + os.sep):
        raise _unsafe(directory, name)
    return path


def _unsafe(directory: str, name: str) -> UnsafeNameError:
    return UnsafeNameError(
        explain(
            f"{name!r} is not the name of a file inside {directory!r}",
            "a relative name without '..', empty parts, backslashes or NUL, that no link leads outside",
            repr(name),
            "rename the variable; when the name comes from a file that you did not write, do not trust that file",
        )
    )
