"""``fluidjax cache``: shows the location and size of the cache of compiled programs, or clears it."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

import jax

from fluidjax.command.terms import size
from fluidjax.execution.executables.kept import FOLDER, keep_in
from fluidjax.execution.executables.store import BOUND, Store

NAME, HELP = "cache", "show or clear the on-disk cache of compiled programs"


def folder() -> str:
    """The directory of compiled programs: $FLUIDJAX_CACHE_DIR, or ``fluidjax/xla`` in the user's cache directory."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("FLUIDJAX_CACHE_DIR") or os.path.join(home, "fluidjax", "xla")


def enable() -> None:
    """Cache compiled programs on disk; and XLA executables, if JAX is configured to cache them."""
    keep_in(folder())
    if jax.config.values.get("jax_compilation_cache_dir"):
        return
    jax.config.update("jax_compilation_cache_dir", folder())
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--clear", action="store_true", help="delete all compiled programs")


def main(options: argparse.Namespace) -> int:
    """Show or clear."""
    path = Path(folder())
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
    print(f"{path}: {len(files)} files, {size(sum(file.stat().st_size for file in files))}")
    steps = Store(path / FOLDER).sizes()
    if steps:
        print(f"  of these {len(steps)} whole steps of programs, {size(sum(steps.values()))} of at most {size(BOUND)}")
    if options.clear and files:
        shutil.rmtree(path)
        print("cleared")
    return 0
