"""Names of Fluid that scripts import and fluidjax does not have yet: they import, and raise when they are used.

A script imports what trains on many machines, or deploys, at its top, and reaches for it in one branch only.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from fluidjax.base.errors import explain


class NotBuiltError(NotImplementedError):
    """A script uses a part of Fluid that fluidjax does not have yet."""


class Instead(NamedTuple):
    """What fluidjax has in place of what is not built: the middle and the end of an error."""

    expected: str
    todo: str


ONE_PROCESS = Instead(
    "a program that trains in one process", "take the script's branch for a single machine (most have an option for it)"
)


def _refuse(name: str, instead: Instead) -> NoReturn:
    raise NotBuiltError(
        explain(f"{name} is not built in fluidjax yet", instead.expected, f"a use of {name}", instead.todo)
    )


class _UnbuiltClass(type):
    """The class of classes that can be imported, derived from and asked about, and no more."""

    _fluid_name = ""
    _instead = ONE_PROCESS

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(cls._fluid_name, cls._instead)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"{cls._fluid_name}.{name}", cls._instead)


def unbuilt(module: str, name: str, instead: Instead = ONE_PROCESS) -> Any:
    """A stand-in for a class or function: it raises NotBuiltError when it is called or asked for an attribute."""
    own = {"__module__": module, "_fluid_name": f"{fluid_name(module)}.{name}", "_instead": instead}
    return _UnbuiltClass(name, (), own)


class UnbuiltObject:
    """A stand-in for a module's object (``fleet``): it raises NotBuiltError when anything of it is used."""

    def __init__(self, module: str, name: str) -> None:
        self._fluid_name = f"{fluid_name(module)}.{name}"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"{self._fluid_name}.{name}", ONE_PROCESS)


def is_unbuilt(value: Any) -> bool:
    """Whether a name's value stands in for something to be built."""
    return isinstance(value, UnbuiltObject) or type(value) is _UnbuiltClass


def fluid_name(module: str) -> str:
    """fluidjax.transpiler -> fluid.transpiler."""
    return "fluid" + module.removeprefix("fluidjax")
