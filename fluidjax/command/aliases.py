"""Makes fluidjax importable as ``paddle`` and ``paddle.fluid``, without a package of that name on disk.

Each alias *is* the module it stands for (``paddle.fluid.io is fluidjax.io``): nothing is imported twice.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from types import ModuleType

# The longer names first: modules that Fluid once had, and before 0.12 the whole package as ``paddle.v2``.
ROOTS = {
    "paddle.fluid.imperative": "fluidjax.dygraph",
    "paddle.fluid.contrib.trainer": "fluidjax.legacy.trainer",
    "paddle.fluid.contrib.inferencer": "fluidjax.legacy.trainer",
    "paddle.fluid.trainer": "fluidjax.legacy.trainer",
    "paddle.fluid.inferencer": "fluidjax.legacy.trainer",
    "paddle.fluid.dygraph_grad_clip": "fluidjax.legacy.dygraph_grad_clip",
    "paddle.fluid.distribute_transpiler": "fluidjax.transpiler.distribute_transpiler",
    "paddle.fluid.memory_optimization_transpiler": "fluidjax.transpiler.memory_optimization_transpiler",
    "paddle.fluid.concurrency": "fluidjax.legacy.concurrency",
    "paddle.v2.fluid": "fluidjax",
    "paddle.fluid": "fluidjax",
    "paddle.v2": "fluidjax.paddle",
    "paddle": "fluidjax.paddle",
}


def target_of(name: str) -> str | None:
    """The module that ``name`` refers to: paddle.fluid.io -> fluidjax.io; None for names outside ``paddle``."""
    for alias, target in ROOTS.items():
        if name == alias or name.startswith(alias + "."):
            return target + name[len(alias) :]
    return None


class AliasLoader(importlib.abc.Loader):
    """Returns a module imported under its own name."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Import the target under its own name and return that module; its own spec is kept for ``exec_module``."""
        module = importlib.import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec; it has already been executed and is not run again."""
        module.__spec__ = self._spec  # the import system has put the alias's spec there


class AliasFinder(importlib.abc.MetaPathFinder):
    """Finds every name under ``paddle`` for which fluidjax has a module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of an alias; None for names outside ``paddle`` or without a module in fluidjax."""
        real = target_of(fullname)
        if real is None or importlib.util.find_spec(real) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, AliasLoader(real), is_package=True)


class PaddleImportedError(ImportError):
    """A different package named ``paddle`` has already been imported by this process."""


def serve() -> None:
    """From now on, ``import paddle`` in this process imports fluidjax. Idempotent.

    Raises PaddleImportedError if a real ``paddle`` was imported before.
    """
    if served():
        return
    present = sys.modules.get("paddle")
    if present is not None:
        raise PaddleImportedError(
            "fluidjax cannot serve the name 'paddle' in this process\n"
            "  expected: no module of that name to be imported yet\n"
            f"  received: {present!r}\n"
            "  what to do: call fluidjax.command.aliases.serve() before anything imports paddle, or use `fluidjax run`"
        )
    importlib.import_module("fluidjax.paddle")
    _name_loaded_modules()
    sys.meta_path.insert(0, AliasFinder())


def served() -> bool:
    """Whether ``import paddle`` in this process imports fluidjax."""
    return any(isinstance(finder, AliasFinder) for finder in sys.meta_path)


def child_environment() -> dict[str, str]:
    """The environment for child processes, in which ``python`` finds ``paddle`` as this process does."""
    environment = dict(os.environ)
    if served():
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "served")
        _put_first(environment, "PYTHONPATH", folder)
        if os.path.dirname(shutil.which("python") or "") != os.path.dirname(sys.executable):
            _put_first(environment, "PATH", os.path.dirname(sys.executable))
    return environment


def _put_first(environment: dict[str, str], name: str, folder: str) -> None:
    others = [part for part in environment.get(name, "").split(os.pathsep) if part and part != folder]
    environment[name] = os.pathsep.join([folder, *others])


def _name_loaded_modules() -> None:
    """Register aliases of modules already loaded.

    Importing one later under its alias would rebind it in its package, hiding a function of the same name
    (``paddle.batch``, ``fluid.data``).
    """
    for name, module in list(sys.modules.items()):
        for alias, target in reversed(ROOTS.items()):
            if name == target or name.startswith(target + "."):
                sys.modules[alias + name[len(target) :]] = module
