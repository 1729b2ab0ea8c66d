"""``fluidjax doctor``: versions, devices and caches, for use in bug reports."""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata

import jax

from fluidjax.base.version import full_version, package_version
from fluidjax.command import cache
from fluidjax.command.terms import table

NAME, HELP = "doctor", "show versions, devices and caches"
# Those that add to what users can do.
EXTRAS = ("datasets", "export", "serve", "plot", "distributed", "notebooks")
PACKAGES = ("jax", "jaxlib", "numpy", "protobuf", "ml_dtypes", "paddlepaddle")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments, of which there are none."""


def main(options: argparse.Namespace) -> int:
    """Print the report; returns 1 if something will not work."""
    print(table(facts()))
    problems = list(_problems())
    print("\n".join(problems) or "nothing wrong found")
    return 1 if problems else 0


def facts() -> Iterator[tuple[str, str]]:
    """Facts about this installation."""
    yield "fluidjax", f"{package_version()}, speaks Fluid {full_version}"
    yield "Python", f"{platform.python_version()} ({sys.executable})"
    yield "system", f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    for name in PACKAGES:
        yield name, _version(name) or "not installed"
    for device in jax.devices():
        yield "device", f"{device.platform}:{device.id} {device.device_kind}"
    yield "compiled programs", f"{jax.config.values.get('jax_compilation_cache_dir') or cache.folder()}"
    missing = [f"{extra} ({', '.join(absent)})" for extra in EXTRAS if (absent := _absent(extra))]
    yield "extras", f"not installed: {'; '.join(missing)}" if missing else "all installed"
    for name in sorted(n for n in os.environ if n.startswith(("FLAGS_", "FLUIDJAX_", "JAX_", "XLA_", "PADDLE_"))):
        yield name, os.environ[name]


def _absent(extra: str) -> list[str]:
    """The packages of an extra that are not installed."""
    known = metadata.requires("fluidjax") if _version("fluidjax") else None
    wanted = [requirement for requirement in known or () if requirement.endswith(f'extra == "{extra}"')]
    names = [re.split(r"[^\w.-]", requirement)[0] for requirement in wanted]
    return [name for name in names if _version(name) is None]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _problems() -> Iterator[str]:
    if _version("paddlepaddle"):
        yield "paddlepaddle is installed here too: `import paddle` outside of `fluidjax run` gives that one"
    folder = cache.folder()
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if not os.access(folder, os.W_OK):
        yield f"compiled programs cannot be kept in {cache.folder()}: set FLUIDJAX_CACHE_DIR to a folder of yours"
