"""Placeholders for Fluid names not yet implemented: they can be imported, and raise when used.

Scripts import features for distributed training or deployment at the top, and use them in a single branch only.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from fluidjax.base.errors import explain


class NotBuiltError(NotImplementedError, ImportError):
    """A script uses a part of Fluid that fluidjax does not implement yet.

    An ImportError, too: that is what scripts expect where the library of such a part (MPI, pslib) is missing.
    """


class Instead(NamedTuple):
    """The alternative offered by fluidjax: the middle and end of an error message."""

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
    """Metaclass of classes that can only be imported, subclassed and inspected."""

    _fluid_name = ""
    _instead = ONE_PROCESS

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(cls._fluid_name, cls._instead)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"{cls._fluid_name}.{name}", cls._instead)


def unbuilt(module: str, name: str, instead: Instead = ONE_PROCESS) -> Any:
    """A placeholder for a class or function: raises NotBuiltError when called or asked for an attribute."""
    own = {"__module__": module, "_fluid_name": f"{fluid_name(module)}.{name}", "_instead": instead}
    return _UnbuiltClass(name, (), own)


class UnbuiltObject:
    """A placeholder for a module's object (``fleet``): raises NotBuiltError when any attribute is used."""

    def __init__(self, module: str, name: str) -> None:
        self._fluid_name = f"{fluid_name(module)}.{name}"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"{self._fluid_name}.{name}", ONE_PROCESS)


def is_unbuilt(value: Any) -> bool:
    """Whether a value is such a placeholder."""
    return isinstance(value, UnbuiltObject) or type(value) is _UnbuiltClass


def fluid_name(module: str) -> str:
    """fluidjax.transpiler -> fluid.transpiler."""
    return "fluid" + module.removeprefix("fluidjax")
