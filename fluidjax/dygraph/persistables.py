"""Eager checkpoints as Fluid 1.4 and 1.5 kept them: a folder with a file for each parameter, under its own name."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fluidjax.base.errors import explain
from fluidjax.base.unknown import unknown_name
from fluidjax.dygraph.base import dygraph_only, to_variable
from fluidjax.files import atomic, host_ops, pickles
from fluidjax.framework import Variable

__all__ = ["save_persistables", "load_persistables"]

SCHEDULES = "optimizers"  # the folder in the folder; no parameter's file is read from it


class ByName(dict[str, Any]):
    """Variables by the parameters' own names (``conv2d_0.w_0``), which ``Layer.load_dict`` takes as they are."""


class Persistables(NamedTuple):
    """What ``load_persistables`` gives of a folder; ``Layer.load_dict`` takes the first of the two."""

    parameters: ByName
    schedules: dict[str, dict[str, Any]]


def state_of(given: Any, structured: bool) -> tuple[Any, bool]:
    """The state in what is given to ``load_dict``, and whether its names are structured ones."""
    state = given.parameters if isinstance(given, Persistables) else given
    return state, structured and not isinstance(state, ByName)


def part_of(state: dict[str, Any], layer: Any) -> dict[str, Any]:
    """What of a state belongs to a layer: all, but of one by the parameters' own names those of the layer's."""
    if not isinstance(state, ByName):
        return state
    return ByName({var.name: state[var.name] for var in layer.parameters() if var.name in state})


def is_left_out(layer: Any, name: str, state: dict[str, Any]) -> bool:
    """Whether a state by the parameters' own names lacks one, which then stays as it is, as in Fluid 1.5; warns.

    Raises RuntimeError for a state that has nothing for the layer at all.
    """
    if not isinstance(state, ByName) or name in state:
        return False
    if state and not _has_some_of(layer, state):
        raise RuntimeError(
            explain(
                f"{layer.full_name()}: the state has nothing for any of the layer's parameters",
                f"the parameters' own names, like {name!r}",
                f"the names {sorted(state)[:8]}",
                "build the layers in the order of the saved network, in a fresh guard; rename the files of a folder "
                "whose names are others",
            )
        )
    warnings.warn(
        f"{layer.full_name()}: the state has nothing for parameter {name!r}, which keeps its value; expected all "
        f"parameters, received {sorted(state)[:8]}. If it should be there, build the layers in the order of the saved "
        "network, in a fresh guard",
        stacklevel=3,
    )
    return True


@dygraph_only
def save_persistables(model_dict: Any, dirname: str = "save_dir", optimizers: Any = None) -> None:
    """Save each parameter of a state dict to ``dirname/NAME``, as Paddle's tensor files; NAME is the parameter's own.

    Args:
        model_dict: the ``state_dict()`` of a layer, or a list of its parameters.
        dirname: the folder; it is made.
        optimizers: an optimizer or several: the schedules of their learning rates go to ``dirname/optimizers``. Text,
            as Fluid 1.4 had it, is the name of one file for all parameters, in the order of their names.

    Raises TypeError for what holds no parameters.
    """
    found = _named(model_dict, "save_persistables")
    if isinstance(optimizers, str):
        host_ops.save([found[name].numpy() for name in sorted(found)], os.path.join(dirname, optimizers), True, False)
        return
    for name, var in found.items():
        host_ops.save([var.numpy()], os.path.join(dirname, os.path.normpath(name)), True, False)
    for optimizer in _listed(optimizers):
        if hasattr(optimizer._learning_rate, "state_dict"):
            path = os.path.join(dirname, SCHEDULES, str(optimizer._name))
            atomic.write_file(path, [pickles.dumps(optimizer._learning_rate.state_dict())])


@dygraph_only
def load_persistables(dirname: Any = "save_dir", *older: str | None) -> Any:
    """Load what ``save_persistables`` saved, or Fluid 1.5.

    Args:
        dirname: the folder.
        older: as Fluid 1.4 had it: after a state dict, the folder and the name of the one file (None: there are many).

    Returns:
        (variables by the parameters' own names, states of schedules by the optimizers' names); as Fluid 1.4 called it,
        the variables. ``layer.load_dict`` takes any of these and warns of parameters that they lack, ``optimizer.load``
        takes the schedules.

    Raises FileNotFoundError if there is no such folder, FileFormatError for a damaged file.
    """
    if isinstance(dirname, str):
        return Persistables(_read_folder(dirname), _read_schedules(os.path.join(dirname, SCHEDULES)))
    folder, file = (*older, None, None)[:2]
    names = sorted(_named(dirname, "load_persistables"))
    if file is None:
        every = _read_folder(str(folder))
        return ByName({name: every[name] for name in names if name in every})
    arrays = host_ops.load(os.path.join(str(folder), file), [False] * len(names), False, -1, ())
    return ByName({name: to_variable(array, name=name) for name, array in zip(names, arrays, strict=True)})


def _read_folder(folder: str) -> ByName:
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            explain(
                f"load_persistables: there is no folder {folder!r}",
                "one that fluid.dygraph.save_persistables wrote",
                f"in {os.path.dirname(folder) or '.'}: no such folder",
                "check the path; a file that ends in .pdparams is read by fluid.load_dygraph",
            )
        )
    found = ByName()
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if os.path.join(path, each) != os.path.join(folder, SCHEDULES))
        for file in sorted(each for each in files if not each.startswith(".")):
            name = os.path.relpath(os.path.join(path, file), folder).replace(os.sep, "/")
            (array,) = host_ops.load(os.path.join(path, file), [False], False, -1, ())
            found[name] = to_variable(array, name=name)
    return found


def _read_schedules(folder: str) -> dict[str, dict[str, Any]]:
    found = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        with atomic.open_newest(folder, name) as file:
            found[name] = pickles.loads(file.read(), os.path.join(folder, name))
    return found


def _has_some_of(layer: Any, state: ByName) -> bool:
    """Whether a state has a parameter of a layer, or may have one of those it makes at its first call."""
    waits = any("_pending" in each.__dict__ for _, each in layer.named_sublayers(include_self=True))
    return waits or any(var.name in state for var in layer.parameters())


def _named(state: Any, what: str) -> dict[str, Any]:
    values: Iterable[Any] = state.values() if isinstance(state, Mapping) else _listed(state)
    found = {var.name: var for var in values if isinstance(var, Variable)}
    if not found:
        raise TypeError(
            explain(
                f"{what}: there are no parameters",
                "layer.state_dict(), or a list of parameters",
                f"{type(state).__name__} {str(state)[:60]!r}",
                "pass the state_dict() of the layer",
            )
        )
    return found


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


__getattr__ = unknown_name(__name__)
