"""Saving and loading the state of layers and optimizers: ``prefix.pdparams`` and ``prefix.pdopt``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.unknown import unknown_name
from fluidjax.dygraph.base import dygraph_only
from fluidjax.files import atomic, pickles
from fluidjax.framework import Parameter, Variable

__all__ = ["save_dygraph", "load_dygraph"]

TABLE = "StructuredToParameterName@@"
PARAMETERS, OPTIMIZER = ".pdparams", ".pdopt"


@dygraph_only
def save_dygraph(state_dict: dict[str, Any], model_path: str) -> None:
    """Save the state dict of a layer to ``model_path.pdparams``, or that of an optimizer to ``model_path.pdopt``.

    The file is byte-for-byte the pickle written by Paddle 1.8.5. It is written atomically.

    Args:
        state_dict: the result of ``state_dict()`` of a layer or an optimizer; a layer's starts with a parameter.
        model_path: directory and file name prefix; the directory is created.

    Raises AssertionError for an empty dict, or a path that ends in a directory.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     net = fluid.dygraph.Linear(2, 1)
        ...     adam = fluid.optimizer.Adam(0.01, parameter_list=net.parameters())
        ...     fluid.dygraph.save_dygraph(net.state_dict(), "checkpoint/net")
        >>> os.listdir("checkpoint")
        ['net.pdparams']
    """
    if not os.path.basename(model_path):
        raise AssertionError(
            explain(
                "The input model_path MUST be format of dirname/filename",
                "a path that ends in the first part of a file's name, like folder/model",
                f"{model_path!r}, whose filename is empty string.",
                "add a name",
            )
        )
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            explain(
                "save_dygraph: there is no state to save",
                "a dict from names to parameters or arrays",
                f"{type(state_dict).__name__}",
                "pass layer.state_dict() or optimizer.state_dict()",
            )
        )
    if not state_dict:
        raise AssertionError("state_dict is empty, no need to save: it should hold a layer's or an optimizer's state.")
    kind = PARAMETERS if isinstance(next(iter(state_dict.values())), Parameter) else OPTIMIZER
    content = {name: value.numpy() if isinstance(value, Variable) else value for name, value in state_dict.items()}
    content[TABLE] = {name: value.name for name, value in state_dict.items() if isinstance(value, Variable)}
    atomic.write_file(model_path + kind, [pickles.dumps(content)])


@dygraph_only
def load_dygraph(model_path: str, keep_name_table: bool = False) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Load what ``save_dygraph`` saved.

    Args:
        model_path: the path given to ``save_dygraph``, or one of the files.
        keep_name_table: whether to keep the table of the parameters' own names in the first dict.

    Returns:
        (arrays by structured name, the optimizer's state or None)

    Raises RuntimeError if there is no .pdparams file, FileFormatError if a file has unexpected content.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     net = fluid.dygraph.Linear(2, 1)
        ...     fluid.dygraph.save_dygraph(net.state_dict(), "net")
        ...     state, optimizer_state = fluid.dygraph.load_dygraph("net")
        ...     net.set_dict(state)
        ...     print(sorted(state), optimizer_state)
        ['bias', 'weight'] None
    """
    prefix = (
        model_path.removesuffix(PARAMETERS) if model_path.endswith(PARAMETERS) else model_path.removesuffix(OPTIMIZER)
    )
    parameters, optimizer = _read(prefix + PARAMETERS), _read(prefix + OPTIMIZER)
    if parameters is None:
        raise RuntimeError(
            explain(
                f"Parameter file [ {prefix + PARAMETERS} ] not exists",
                "a file that fluid.save_dygraph wrote for a layer",
                f"no such file in {os.path.dirname(prefix) or '.'}",
                "check the path; save the layer's state_dict() too, not only the optimizer's",
            )
        )
    if not keep_name_table:
        parameters.pop(TABLE, None)
    return parameters, optimizer


def _read(path: str) -> dict[str, Any] | None:
    try:
        with atomic.open_newest(*os.path.split(path)) as file:
            content = pickles.loads(file.read(), path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return {name: np.array(v) if isinstance(v, np.ndarray) else v for name, v in content.items()}


__getattr__ = unknown_name(__name__)
