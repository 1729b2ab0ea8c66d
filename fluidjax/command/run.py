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
from fluidjax.command.terms import BadUse

# What `pip install paddlepaddle` brought along, and Python itself once: module -> package. The extra `legacy` has all.
PADDLE_NEEDS = {
    "PIL": "pillow",
    "astor": "astor",
    "cv2": "opencv-python-headless",
    "decorator": "decorator",
    "distutils": "setuptools",
    "funcsigs": "funcsigs",
    "gast": "gast",
    "graphviz": "graphviz",
    "matplotlib": "matplotlib",
    "nltk": "nltk",
    "objgraph": "objgraph",
    "prettytable": "prettytable",
    "rarfile": "rarfile",
    "requests": "requests",
    "scipy": "scipy",
    "six": "six",
    "yaml": "pyyaml",
}

NAME, HELP = "run", "run a script written for Paddle Fluid"
USAGE = "fluidjax run [-m] SCRIPT [ARGUMENTS ...]"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = USAGE
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module name")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="the script's arguments")


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
        traceback.print_exception(type(error), error, _from_script(error.__traceback__))
        hint = _hint(error)
        if hint:
            print(hint, file=sys.stderr)
        return 1
    return 0


def _hint(error: BaseException) -> str:
    """Advice about missing modules that were installed alongside Paddle as its own dependencies."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name not in PADDLE_NEEDS:
        return ""
    return (
        f"fluidjax: the script uses {name!r}, which was installed together with Paddle\n"
        f"  expected: the module {name}\n  received: it is not installed here\n"
        f"  what to do: pip install {PADDLE_NEEDS[name]}, or all that came with Paddle: pip install 'fluidjax[legacy]'"
    )


def _from_script(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this file and runpy."""
    ours = {__file__, runpy.__file__, "<frozen runpy>"}
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename in ours:
        inner = inner.tb_next
    return inner or trace
