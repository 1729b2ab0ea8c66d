"""Names of Fluid that scripts import and fluidjax does not have yet: they import, and raise when they are used.

A script imports what trains on many machines at its top, and reaches for it in one branch only.
"""

from __future__ import annotations

from typing import Any, NoReturn

from fluidjax.files.errors import explain


class NotBuiltError(NotImplementedError):
    """A script uses a part of Fluid that fluidjax does not have yet."""


def _refuse(name: str) -> NoReturn:
    raise NotBuiltError(
        explain(
            f"{name} is not built in fluidjax yet",
            "a program that trains in one process",
            f"a use of {name}",
            "take the script's branch for a single machine (most have an option for it)",
        )
    )


class _UnbuiltClass(type):
    """The class of classes that can be imported, derived from and asked about, and no more."""

    _fluid_name = ""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(cls._fluid_name)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"{cls._fluid_name}.{name}")


def unbuilt(module: str, name: str) -> Any:
    """A stand-in for a class or function: it raises NotBuiltError when it is called or asked for an attribute."""
    return _UnbuiltClass(name, (), {"__module__": module, "_fluid_name": f"{fluid_name(module)}.{name}"})


class UnbuiltObject:
    """A stand-in for a module's object (``fleet``): it raises NotBuiltError when anything of it is used."""

    def __init__(self, module: str, name: str) -> None:
        self._fluid_name = f"{fluid_name(module)}.{name}"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"{self._fluid_name}.{name}")


def is_unbuilt(value: Any) -> bool:
    """Whether a name's value stands in for something to be built."""
    return isinstance(value, UnbuiltObject) or type(value) is _UnbuiltClass


def fluid_name(module: str) -> str:
    """fluidjax.transpiler -> fluid.transpiler."""
    return "fluid" + module.removeprefix("fluidjax")
