"""The system under test as the network runner sees it: values in and out of a Scope, programs run by an Executor."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

import fluidjax as fluid
from tests.golden.values import Rows, Tensor, TensorList, Value


def lod_tensor(value: Tensor) -> Any:
    """A fluid.LoDTensor with the value's numbers and LoD."""
    tensor = fluid.LoDTensor()
    tensor.set(value.array, fluid.CPUPlace())
    if value.lod:
        tensor.set_lod(value.lod)
    return tensor


def value_of(fetched: Any) -> Value | None:
    """A fetched value (return_numpy=False) as a recorded value."""
    if fetched is None:
        return None
    if isinstance(fetched, fluid.core.SelectedRows):
        return Rows(np.asarray(fetched.rows()), fetched.height(), np.array(fetched.get_tensor()))
    if isinstance(fetched, (fluid.core.LoDTensorArray, list)):
        return TensorList([value_of(item) for item in fetched])  # type: ignore[misc]
    return Tensor(np.array(fetched), [list(level) for level in fetched.lod()])


class Session:
    """One Scope and one Executor; ``interpret`` runs op by op, with ``after_op`` called after each."""

    def __init__(self, interpret: bool = False, after_op: Any = None) -> None:
        self.scope = fluid.Scope()
        self.executor = fluid.Executor(fluid.CPUPlace())
        self.interpret = interpret
        self.after_op = after_op
        self.programs: dict[bytes, Any] = {}

    def set(self, values: Mapping[str, Value]) -> None:
        """Put values into the scope; tensors without memory stay uninitialised."""
        for name, value in values.items():
            variable = self.scope.var(name)
            if isinstance(value, Rows):
                rows = variable.get_selected_rows()
                rows.set_rows([int(r) for r in value.rows])
                rows.set_height(value.height)
                rows.get_tensor().set(value.array, fluid.CPUPlace())
            elif isinstance(value, TensorList):
                array = variable.get_lod_tensor_array()
                for item in value.items:
                    array.append(lod_tensor(item))
            elif isinstance(value, Tensor) and value.array is not None:
                variable.get_tensor().set(value.array, fluid.CPUPlace())
                variable.get_tensor().set_lod(value.lod)

    def get(self, name: str) -> np.ndarray | None:
        """The array that a scope variable holds."""
        var = self.scope.find_var(name)
        return None if var is None else np.array(var.get_tensor())

    def run(self, program: bytes | Any, feed: dict[str, Value], fetch: list[str]) -> dict[str, Value | None]:
        """Run a program (a serialized ProgramDesc, or a Program) and fetch by name."""
        if isinstance(program, bytes):
            program = self.programs.setdefault(program, fluid.Program.parse_from_string(program))
        feeds = {name: lod_tensor(value) for name, value in feed.items() if isinstance(value, Tensor)}
        options = {"scope": self.scope, "return_numpy": False}
        with fluid.interpret_mode(self.after_op) if self.interpret else contextlib.nullcontext():
            fetched = self.executor.run(program, feed=feeds, fetch_list=list(fetch), **options)
        return {name: value_of(value) for name, value in zip(fetch, fetched, strict=True)}
