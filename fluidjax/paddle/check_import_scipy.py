"""A check that ``paddle`` performs on Windows."""

from __future__ import annotations

import importlib


def check_import_scipy(OsName: str) -> None:
    """On Windows ('nt'), raise ImportError with advice if scipy is installed but cannot be loaded."""
    if OsName != "nt":
        return
    try:
        importlib.import_module("scipy.io")
    except ImportError as error:
        if "DLL" not in str(error):
            return
        raise ImportError(
            f"{error}\nplease download the visual C++ Redistributable from vs2015 (https://aka.ms/vs/14/release)"
        ) from error
