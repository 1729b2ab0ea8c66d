"""StaticModelRunner: a saved inference model as a layer of an eager network."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from fluidjax.base.mode import current_tracer, tracer_guard
from fluidjax.base.scope import Scope
from fluidjax.dygraph.dygraph_to_static.partial_program import PartialProgramLayer
from fluidjax.dygraph.layers import Layer
from fluidjax.eager.variables.varbase import ParamBase, VarBase
from fluidjax.executor import Executor, scope_guard
from fluidjax.framework import Program
from fluidjax.framework.names import LOADED_VAR_SUFFIX
from fluidjax.io import load_inference_model


class StaticModelRunner(Layer):
    """A model saved by ``save_inference_model``, to be run or trained further.

    Its parameters are named ``<name>@LOADED``. Those that receive no gradient have ``stop_gradient`` True.

    Args:
        model_dir: the directory.
        model_filename: file name of the program, ``__model__`` by default.
        params_filename: file name of the parameters, if they are in a single file.

    Raises ValueError if the directory does not exist.
    """

    def __init__(self, model_dir: str, model_filename: str | None = None, params_filename: str | None = None) -> None:
        super().__init__()
        folder = os.path.normpath(model_dir)
        if not os.path.isdir(folder):
            raise ValueError(f"There is no directory named '{folder}'. Pass the folder of a saved inference model.")
        scope = Scope()
        with tracer_guard(None), scope_guard(scope):
            program, self._input_names, fetched = load_inference_model(
                folder, Executor(), model_filename=model_filename, params_filename=params_filename
            )
        self._output_names = [v.name for v in fetched]
        state = self._take_over(program, scope)
        self._program = program
        self._partials = {training: self._partial(training, state) for training in (True, False)}
        reached = self._partials[True].differentiable()
        for name, param in state.items():
            param.stop_gradient = name not in reached

    def _take_over(self, program: Program, scope: Scope) -> dict[str, Any]:
        """Create parameters from the values of the program's persistable variables in a scope."""
        block = program.global_block()
        state: dict[str, Any] = {}
        for name in [v.name for v in block.vars.values() if v.persistable and v.name not in ("feed", "fetch")]:
            held = scope.find_var(name)
            if held is None:
                continue
            array = np.array(held.get_tensor())
            loaded = name if name.endswith(LOADED_VAR_SUFFIX) else name + LOADED_VAR_SUFFIX
            for inner in program.blocks:
                _rename(inner, name, loaded)
            param = ParamBase(array.shape, str(array.dtype), name=loaded)
            param.set_value(array)
            state[loaded] = self.add_parameter(loaded, param)
        return state

    def _partial(self, training: bool, state: dict[str, Any]) -> PartialProgramLayer:
        program = self._program.clone()
        for block in program.blocks:
            for op in block.ops:
                if op.has_attr("is_test"):
                    op._set_attr("is_test", not training)
        block = program.global_block()
        inputs, outputs = [block.var(n) for n in self._input_names], [block.var(n) for n in self._output_names]
        return PartialProgramLayer(program, inputs, outputs, state)

    def forward(self, *args: Any) -> Any:
        """The outputs of the model, one variable or a list, for inputs (arrays or variables) in the order saved.

        Raises TypeError for anything else.
        """
        values = []
        for value in args:
            if not isinstance(value, (np.ndarray, VarBase)):
                raise TypeError(
                    "The type of inputs.value in StaticModelRunner.forward must be numpy array or Variable(VarBase), "
                    f"but received {type(value)}. Convert it with numpy.array."
                )
            values.append(current_tracer().to_variable(value) if isinstance(value, np.ndarray) else value)
        outputs = self._partials[self.training](values)
        return outputs[0] if len(outputs) == 1 else outputs


def _rename(block: Any, name: str, new_name: str) -> None:
    """Rename a variable in the ops of a block and in its declaration."""
    if block.has_var(name):
        block._rename_var(name, new_name)
        return
    for op in block.ops:
        op._rename_input(name, new_name)
        op._rename_output(name, new_name)
