"""A check that the imported ``lowering`` package is fluidjax's own, since scripts may have one of the same name."""

from __future__ import annotations

import os
from types import ModuleType


def check_lowering(module: ModuleType) -> None:
    """Raise ImportError unless `module` is the `lowering` package that belongs to `fluidjax`.

    A package found elsewhere is accepted if it has what the front end needs, so that the two may be installed
    separately.
    """
    found = os.path.abspath(getattr(module, "__file__", None) or next(iter(module.__path__), ""))
    expected = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lowering", "__init__.py")
    if os.path.realpath(found) == os.path.realpath(expected):
        return
    if all(hasattr(module, name) for name in ("get_op", "infer_outputs", "check_attrs", "ProgramView")):
        return
    raise ImportError(
        f"`import lowering` found {found}, which is not the back end of fluidjax. Expected {expected}. A folder or "
        "file named `lowering` beside your script (or earlier on sys.path) hides it: rename or move that one."
    )
