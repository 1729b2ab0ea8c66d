"""``fluidjax run``: runs a script written for PaddlePaddle Fluid, unmodified.

``paddle`` is importable, and features of older Python and NumPy releases are restored (``fluidjax.legacy``).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import sys
import traceback
from types import TracebackType

from fluidjax import legacy
from fluidjax.command import aliases, cache, leaving
from fluidjax.command.advice import advice
from fluidjax.command.terms import BadUse

NAME, HELP = "run", "run a script written for Paddle Fluid"
USAGE = "fluidjax run [-m] SCRIPT [ARGUMENTS ...]"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = USAGE
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module name")
    parser.add_argument("script", metavar="SCRIPT")
    rest = parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="the script's arguments"
    )
    rest.required = False  # nor called so where SCRIPT is missing


def main(options: argparse.Namespace) -> int:
    """Run the script; returns 1 if it ends with an exception. Raises BadUse if the script does not exist."""
    return run(options.script, options.arguments, options.module)


def run(script: str, arguments: list[str], module: bool = False) -> int:
    """Run a script with its arguments, with ``paddle`` importable; returns 1 if it ends with an exception."""
    if module:
        sys.path.insert(0, os.getcwd())
        _need_module(script)
    elif not os.path.isfile(script):
        raise BadUse(
            f"cannot run {script!r}",
            "the path of a Python script",
            "a folder" if os.path.isdir(script) else "no such file",
            "check the path, or name a module with -m",
        )
    leaving.watch()
    legacy.install()
    aliases.serve()
    os.environ.update(aliases.child_environment())
    cache.enable()
    return _run(script, arguments, module)


def _need_module(name: str) -> None:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise BadUse(
            f"cannot run the module {name!r}",
            "a module that Python finds from this folder, or installed",
            "no module of that name",
            "check the name, or give the path of a script without -m",
        )


def _run(script: str, arguments: list[str], module: bool) -> int:
    """Run as ``python SCRIPT`` would; tracebacks start at the script's first frame."""
    sys.argv = [script, *arguments]
    if not module:
        sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except Exception as error:
        traceback.print_exception(type(error), error, _from_script(error))
        told = advice(error)
        if told:
            print(told, file=sys.stderr)
        return 1
    return 0


def _from_script(error: Exception) -> TracebackType | None:
    """The traceback without the frames of this file and runpy; a script that cannot be parsed has none of its own."""
    ours = {__file__, runpy.__file__, "<frozen runpy>"}
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename in ours:
        inner = inner.tb_next
    return inner if inner or isinstance(error, SyntaxError) else error.__traceback__
