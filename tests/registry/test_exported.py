"""``from paddle.fluid.x import *`` gives a script the names that it gives in Paddle 1.8.5."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from fluidjax.command.aliases import target_of
from tests.spec import exported

# Names of fluidjax's own in a module of Fluid: errors, and what gives a loaded program its Python functions.
OWN = {
    "paddle.fluid.io": {
        "FileFormatError", "MismatchError", "UninitializedVariableError", "UnsafeNameError", "UntrustedProgramError",
        "allow_host_ops", "bind_py_func", "bind_py_layer",
    }
}  # fmt: skip


def module_of(name: str) -> ModuleType | None:
    """The module that stands for one of Paddle's; None where there is none."""
    target = target_of(name)
    assert target is not None
    try:
        return importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name and target.startswith(error.name):
            return None
        raise


MODULES = {name: module for name in sorted(exported()) if (module := module_of(name))}


@pytest.mark.parametrize("name", MODULES)
def test_all(name: str) -> None:
    module = MODULES[name]
    theirs = {each for each in exported()[name] if hasattr(module, each)}
    assert set(module.__all__) - OWN.get(name, set()) == theirs


def test_the_common_modules_are_held() -> None:
    assert {"paddle.fluid", "paddle.fluid.io", "paddle.fluid.layers", "paddle.fluid.optimizer"} <= MODULES.keys()


def test_layers_by_a_star() -> None:
    names: dict[str, object] = {}
    exec("from fluidjax.layers import *", names)
    assert names.keys() - {"__builtins__"} == set(exported()["paddle.fluid.layers"])
