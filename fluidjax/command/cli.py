"""The command ``fluidjax``: runs a script that was written for PaddlePaddle Fluid, as it is.

fluidjax run train.py --epochs 3
fluidjax run -m package.module

The script finds ``paddle``, and what it expects of the Python and NumPy of its time (``fluidjax.legacy``).
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from types import TracebackType

import jax

from fluidjax import legacy
from fluidjax.command import aliases

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

USAGE = "fluidjax run [-m] SCRIPT [ARGUMENTS ...]"


def cache_dir() -> str:
    """Where compiled programs are kept: $FLUIDJAX_CACHE_DIR, or ``fluidjax/xla`` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("FLUIDJAX_CACHE_DIR") or os.path.join(home, "fluidjax", "xla")


def enable_compilation_cache() -> None:
    """Keep compiled programs on disk, unless JAX was told where to keep them already."""
    if jax.config.values.get("jax_compilation_cache_dir"):
        return
    jax.config.update("jax_compilation_cache_dir", cache_dir())
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command; returns its exit status."""
    options = _parse(list(sys.argv[1:] if argv is None else argv))
    if not options.module and not os.path.isfile(options.script):
        print(
            f"fluidjax: cannot run {options.script!r}\n  expected: the path of a Python script\n"
            f"  received: {'a folder' if os.path.isdir(options.script) else 'no such file'}\n"
            "  what to do: check the path, or name a module with -m",
            file=sys.stderr,
        )
        return 2
    legacy.install()
    aliases.serve()
    os.environ.update(aliases.child_environment())
    enable_compilation_cache()
    return _run(options.script, options.arguments, options.module)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fluidjax", description=__doc__, usage=USAGE)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    version = metadata.version("fluidjax") if _installed("fluidjax") else "(not installed)"
    parser.add_argument("--version", action="version", version=f"fluidjax {version}")
    run = parser.add_subparsers(dest="command", required=True).add_parser("run", usage=USAGE)
    run.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
    run.add_argument("script", metavar="SCRIPT")
    run.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="what the script sees in sys.argv"
    )
    return parser.parse_args(argv)


def _installed(name: str) -> bool:
    return any(dist.name == name for dist in metadata.distributions())


def _run(script: str, arguments: list[str], module: bool) -> int:
    """Run as ``python SCRIPT`` would; an error is shown from the script's first line on."""
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.getcwd() if module else os.path.dirname(os.path.abspath(script)))
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
    """What to do about a module that scripts find where Paddle is installed, because Paddle needs it itself."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name not in PADDLE_NEEDS:
        return ""
    return (
        f"fluidjax: the script uses {name!r}, which was installed together with Paddle\n"
        f"  expected: the module {name}\n  received: it is not installed here\n"
        f"  what to do: pip install {PADDLE_NEEDS[name]}, or all that came with Paddle: pip install 'fluidjax[legacy]'"
    )


def _from_script(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this file and of runpy."""
    ours = {__file__, runpy.__file__, "<frozen runpy>"}
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename in ours:
        inner = inner.tb_next
    return inner or trace


if __name__ == "__main__":
    sys.exit(main())
