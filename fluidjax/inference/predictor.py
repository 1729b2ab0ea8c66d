"""A saved model as a callable: feeds in, fetches out, with parameters of its own."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.scope import Scope
from fluidjax.executor import Executor
from fluidjax.files import inference
from fluidjax.framework.descs import ProgramDescView
from fluidjax.inference import passes
from fluidjax.inference.config import AnalysisConfig, NativeConfig
from fluidjax.inference.tensors import PaddleTensor, ZeroCopyTensor
from lowering.dtypes import to_numpy


class PaddlePredictor:
    """A model ready to run; created by ``create_paddle_predictor``.

    Inputs and outputs are private to each predictor. Clones share parameters and compiled code, and may run in
    different threads at the same time.

    Args:
        config: the model to load and where to run it. Raises the errors of ``fluid.io.load_inference_model``.
    """

    Config: type = AnalysisConfig

    def __init__(self, config: AnalysisConfig):
        self._config = AnalysisConfig(config)
        self._scope = Scope()
        self._program, self._feeds, fetches = inference.load(*config._model.arguments(), scope=self._scope)
        self._fetches = [var.name for var in fetches]
        if self._config.ir_optim():
            names = self._config.pass_builder().all_passes()
            self._program, self._scope = passes.optimized(self._program, self._feeds, self._fetches, self._scope, names)
        self._start()

    def _start(self) -> None:
        self._executor = Executor(self._config.place())
        block = self._program.global_block()
        self._inputs = {name: ZeroCopyTensor(name, to_numpy(int(block.var(name).dtype))) for name in self._feeds}
        self._outputs = {name: ZeroCopyTensor(name) for name in self._fetches}

    def clone(self) -> Self:
        """Another predictor for the same model, for use in another thread."""
        other = object.__new__(type(self))
        other._config, other._scope, other._program = self._config, self._scope, self._program
        other._feeds, other._fetches = self._feeds, self._fetches
        other._start()
        return other

    def get_input_names(self) -> list[str]:
        """The names of the inputs, in order."""
        return list(self._feeds)

    def get_output_names(self) -> list[str]:
        """The names of the outputs, in order."""
        return list(self._fetches)

    def get_input_tensor_shape(self) -> dict[str, list[int]]:
        """The declared shape of each input, with -1 for unknown dimensions."""
        block = self._program.global_block()
        return {name: list(block.var(name).shape) for name in self._feeds}

    # Tensors given, tensors returned.

    def run(self, inputs: list[PaddleTensor]) -> list[PaddleTensor]:
        """Run the model once.

        Args:
            inputs: one per input, in order, or matched by name if so configured.

        Returns:
            One tensor per output, in order.

        Raises ValueError for missing, unknown or superfluous inputs, and the errors of ``Executor.run``.
        """
        feed = {name: tensor.as_feed() for name, tensor in self._named(inputs).items()}
        return [_result(name, value) for name, value in zip(self._fetches, self._run(feed), strict=True)]

    def _named(self, inputs: list[PaddleTensor]) -> dict[str, PaddleTensor]:
        by_name = self._config.specify_input_name()
        names = [tensor.name for tensor in inputs] if by_name else self._feeds[: len(inputs)]
        if len(inputs) != len(self._feeds) or (by_name and set(names) != set(self._feeds)):
            received = f"{len(inputs)} tensors" + (f" named {names}" if by_name else "")
            raise ValueError(
                explain(
                    "PaddlePredictor.run: the inputs are not those of the model",
                    f"{len(self._feeds)} tensors, for {self._feeds}",
                    received,
                    "give one PaddleTensor for each of get_input_names()",
                )
            )
        return dict(zip(names, inputs, strict=True))

    # Tensors of the predictor's.

    def get_input_tensor(self, name: str) -> ZeroCopyTensor:
        """The tensor to fill for an input. Raises ValueError for an unknown name."""
        return self._tensor(self._inputs, name, "input")

    def get_output_tensor(self, name: str) -> ZeroCopyTensor:
        """The tensor that ``zero_copy_run`` fills for an output. Raises ValueError for an unknown name."""
        return self._tensor(self._outputs, name, "output")

    def _tensor(self, tensors: dict[str, ZeroCopyTensor], name: str, kind: str) -> ZeroCopyTensor:
        if name not in tensors:
            raise ValueError(
                explain(
                    f"PaddlePredictor: the model has no {kind} {name!r}",
                    f"one of {list(tensors)}",
                    repr(name),
                    f"take a name of get_{kind}_names()",
                )
            )
        return tensors[name]

    def zero_copy_run(self) -> bool:
        """Run the model once, from the input tensors to the output tensors; returns True.

        Raises ValueError if an input was never filled, and the errors of ``Executor.run``.
        """
        empty = [name for name, tensor in self._inputs.items() if not tensor.filled]
        if empty:
            raise ValueError(
                explain(
                    "PaddlePredictor.zero_copy_run: not all inputs have values",
                    f"values for {self._feeds}",
                    f"none for {empty}",
                    "fill get_input_tensor(name) with copy_from_cpu(array) first",
                )
            )
        values = self._run({name: tensor.as_feed() for name, tensor in self._inputs.items()})
        for name, value in zip(self._fetches, values, strict=True):
            self._outputs[name].fill(value)
        return True

    def _run(self, feed: dict[str, Any]) -> list[Any]:
        fetches = list(self._fetches)
        return self._executor.run(self._program, feed, fetches, scope=self._scope, return_numpy=False)

    # What is inside.

    def program(self) -> ProgramDescView:
        """The model's program as it runs, after the passes."""
        return self._program.desc

    def scope(self) -> Scope:
        """The scope that holds the parameters."""
        return self._scope

    def get_serialized_program(self) -> bytes:
        """The program as it runs, serialised like a ``__model__`` file."""
        return self._program.desc.serialize_to_string()

    def SaveOptimModel(self, dir: str) -> None:
        """Save the model as it runs, to the files ``model`` and ``params`` in a directory."""
        inference.write_two_files(dir, self._program, self._scope)


class AnalysisPredictor(PaddlePredictor):
    """The predictor for an AnalysisConfig."""


class NativePaddlePredictor(PaddlePredictor):
    """The predictor for a NativeConfig.

    Args:
        config: the model to load and where to run it.
    """

    Config = NativeConfig

    def __init__(self, config: NativeConfig):
        super().__init__(config.as_analysis())


def create_paddle_predictor(config: AnalysisConfig | NativeConfig) -> PaddlePredictor:
    """Load a model and prepare it to run.

    Raises TypeError for anything that is not a config, and the errors of ``fluid.io.load_inference_model``.
    """
    if isinstance(config, NativeConfig):
        return NativePaddlePredictor(config)
    if isinstance(config, AnalysisConfig):
        return AnalysisPredictor(config)
    raise TypeError(
        explain(
            "create_paddle_predictor: no config",
            "an AnalysisConfig or a NativeConfig",
            type(config).__name__,
            "write create_paddle_predictor(AnalysisConfig(folder))",
        )
    )


def _result(name: str, value: Any) -> PaddleTensor:
    return PaddleTensor(np.asarray(value), name, value.lod(), copy=False)
