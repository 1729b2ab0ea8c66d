"""The served model, loaded once and run by one Executor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from fluidjax.base.enums import to_numpy_dtype
from fluidjax.base.places import CPUPlace, CUDAPlace, get_cuda_device_count
from fluidjax.base.scope import Scope
from fluidjax.executor import Executor
from fluidjax.files import inference
from fluidjax.framework import Program
from fluidjax.inference.tensors import with_lod
from fluidjax.serving.tensors import Tensor, Variable


class ServedModel:
    """A saved model with named inputs and outputs.

    Args:
        folder, program, parameters: as for ``load_inference_model``, whose errors are raised.

    Attributes:
        name: name of the directory.
        inputs, outputs: the declared variables, by name.
        state: persistable variables modified by a run: counters, statistics.
    """

    def __init__(self, folder: str, program: str | None = None, parameters: str | None = None):
        self._scope = Scope()
        self._program, feeds, fetches = inference.load(folder, program, parameters, self._scope)
        self.place = CUDAPlace(0) if get_cuda_device_count() else CPUPlace()
        self._executor = Executor(self.place)
        self.name = os.path.basename(os.path.abspath(folder))
        variables = self._program.global_block().vars
        self.inputs = {name: _declared(variables[name]) for name in feeds}
        self.outputs = {var.name: _declared(var) for var in fetches}
        self.state = _written(self._program)

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs of one run. Raises the errors of ``Executor.run``."""
        feed = {name: with_lod(tensor.rows, tensor.lod) for name, tensor in inputs.items()}
        values = self._executor.run(self._program, feed, list(self.outputs), scope=self._scope, return_numpy=False)
        return {name: Tensor(_plain(value), value.lod()) for name, value in zip(self.outputs, values, strict=True)}

    def states(self) -> dict[str, np.ndarray]:
        """Copies of the state."""
        return {name: np.array(self._scope.var(name).get_tensor()) for name in self.state}

    def restore(self, states: Mapping[str, np.ndarray]) -> None:
        """Restore a result of ``states``."""
        for name, value in states.items():
            self._scope.var(name).get_tensor().set(value, self.place)


def _declared(var: Any) -> Variable:
    return Variable(var.name, np.dtype(to_numpy_dtype(var.dtype)), tuple(var.shape), var.lod_level)


def _plain(value: Any) -> np.ndarray:
    """An array with a dtype supported by NumPy's own file format."""
    array = np.asarray(value)
    return array.astype("float32") if array.dtype.name == "bfloat16" else array


def _written(program: Program) -> list[str]:
    """Persistable variables written by ops."""
    written = {
        name for block in program.blocks for op in block.ops if op.type != "fetch" for name in op.output_arg_names
    }
    variables = program.global_block().vars
    return sorted(name for name in written if name in variables and variables[name].persistable)
