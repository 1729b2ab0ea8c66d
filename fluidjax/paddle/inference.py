"""``paddle.inference``: how models of Paddle 2 are deployed; the predictors of ``fluid.core`` under later names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.inference.config import AnalysisConfig, Precision
from fluidjax.inference.predictor import AnalysisPredictor
from fluidjax.inference.tensors import PaddleDType, PaddlePlace, ZeroCopyTensor, paddle_dtype_size

__all__ = [
    "Config", "DataType", "PlaceType", "PrecisionType", "Predictor", "PredictorPool", "Tensor", "create_predictor",
]  # fmt: skip

DataType, PlaceType, PrecisionType, Tensor = PaddleDType, PaddlePlace, Precision, ZeroCopyTensor


class Config(AnalysisConfig):
    """A model, and how to run it: a folder, or the paths of ``.pdmodel`` and ``.pdiparams``.

    Switches choose kernels in Paddle; they are kept, and XLA compiles every model the same way.
    """

    def set_model(self, *model: str) -> None:
        """Name the model: a folder, or its two files."""
        super().set_model(*(str(part) for part in model))

    def enable_use_gpu(
        self, memory_pool_init_size_mb: int, device_id: int = 0, precision_mode: Precision = Precision.Float32
    ) -> None:
        """Run on a GPU where there is one, in the model's own precision whatever ``precision_mode`` says."""
        del precision_mode
        super().enable_use_gpu(memory_pool_init_size_mb, device_id)

    def enable_mkldnn_bfloat16(self) -> None:
        """Kept; the model runs in its own precision."""

    def exp_disable_mixed_precision_ops(self, ops: Any) -> None:
        """Kept; no op runs in another precision."""

    def summary(self) -> str:
        """What is set, a line each."""
        return "\n".join(f"{name}: {value}" for name, value in sorted(self._settings.items()))


class Predictor(AnalysisPredictor):
    """One model, ready to run; made by ``create_predictor``.

    Args:
        config: what to load and where to run. Raises what ``fluid.io.load_inference_model`` raises.
    """

    Config = Config

    def get_input_handle(self, name: str) -> ZeroCopyTensor:
        """The tensor to be filled for an input. Raises ValueError for a name that is none."""
        return self.get_input_tensor(name)

    def get_output_handle(self, name: str) -> ZeroCopyTensor:
        """The tensor that ``run`` fills for an output. Raises ValueError for a name that is none."""
        return self.get_output_tensor(name)

    def run(self, inputs: Sequence[Any] | None = None) -> Any:
        """Run once, from the input tensors to the output tensors; True when done.

        Args:
            inputs: instead of filled tensors, an array for each input, in order; a list of arrays is returned then.

        Raises ValueError when an input has no value, and what ``Executor.run`` raises.
        """
        if inputs is None:
            return self.zero_copy_run()
        for name, value in zip(self.get_input_names(), inputs, strict=True):
            self.get_input_tensor(name).copy_from_cpu(np.asarray(value))
        self.zero_copy_run()
        return [self.get_output_tensor(name).copy_to_cpu() for name in self.get_output_names()]

    def clear_intermediate_tensor(self) -> None:
        """Nothing is kept between runs but inputs and outputs."""

    def try_shrink_memory(self) -> int:
        """How many bytes were given back: 0, the memory is JAX's."""
        return 0


class PredictorPool:
    """Several predictors of one model, for threads.

    Args:
        config: what to load and where to run.
        size: how many.
    """

    def __init__(self, config: Config, size: int = 1):
        first = create_predictor(config)
        self._predictors = [first, *(first.clone() for _ in range(size - 1))]

    def retrive(self, index: int) -> Predictor:
        """One of them. (The name is Paddle's.)"""
        return self._predictors[index]

    retrieve = retrive


def create_predictor(config: AnalysisConfig) -> Predictor:
    """Load a model and make it ready to run. Raises what ``fluid.io.load_inference_model`` raises."""
    return Predictor(config)


def get_version() -> str:
    """The release whose programs are understood."""
    return "version: 2.6.2"


def get_num_bytes_of_data_type(dtype: PaddleDType) -> int:
    """The bytes of one element."""
    return paddle_dtype_size(dtype)
