"""``paddle.inference``: Paddle 2's deployment interface; the predictors of ``fluid.core`` under their new names."""

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
    """A model, and how to run it: a directory, or the paths of ``.pdmodel`` and ``.pdiparams``.

    Switches select kernels in Paddle; here they are stored only, and XLA compiles every model the same way.
    """

    def set_model(self, *model: str) -> None:
        """Specify the model: a directory, or its two files."""
        super().set_model(*(str(part) for part in model))

    def enable_use_gpu(
        self, memory_pool_init_size_mb: int, device_id: int = 0, precision_mode: Precision = Precision.Float32
    ) -> None:
        """Run on a GPU if there is one, in the model's own precision regardless of ``precision_mode``."""
        del precision_mode
        super().enable_use_gpu(memory_pool_init_size_mb, device_id)

    def enable_mkldnn_bfloat16(self) -> None:
        """No effect; the model runs in its own precision."""

    def exp_disable_mixed_precision_ops(self, ops: Any) -> None:
        """No effect; no op runs in another precision."""

    def summary(self) -> str:
        """The settings, one per line."""
        return "\n".join(f"{name}: {value}" for name, value in sorted(self._settings.items()))


class Predictor(AnalysisPredictor):
    """A model ready to run; created by ``create_predictor``.

    Args:
        config: the model to load and where to run it. Raises the errors of ``fluid.io.load_inference_model``.
    """

    Config = Config

    def get_input_handle(self, name: str) -> ZeroCopyTensor:
        """The tensor to fill for an input. Raises ValueError for an unknown name."""
        return self.get_input_tensor(name)

    def get_output_handle(self, name: str) -> ZeroCopyTensor:
        """The tensor that ``run`` fills for an output. Raises ValueError for an unknown name."""
        return self.get_output_tensor(name)

    def run(self, inputs: Sequence[Any] | None = None) -> Any:
        """Run the model once, from the input tensors to the output tensors; returns True.

        Args:
            inputs: instead of filling tensors, one array per input, in order; then a list of arrays is returned.

        Raises ValueError if an input has no value, and the errors of ``Executor.run``.
        """
        if inputs is None:
            return self.zero_copy_run()
        for name, value in zip(self.get_input_names(), inputs, strict=True):
            self.get_input_tensor(name).copy_from_cpu(np.asarray(value))
        self.zero_copy_run()
        return [self.get_output_tensor(name).copy_to_cpu() for name in self.get_output_names()]

    def clear_intermediate_tensor(self) -> None:
        """A no-op: only inputs and outputs are kept between runs."""

    def try_shrink_memory(self) -> int:
        """The number of bytes released: 0, as JAX manages the memory."""
        return 0


class PredictorPool:
    """Several predictors for one model, for use in threads.

    Args:
        config: the model to load and where to run it.
        size: number of predictors.
    """

    def __init__(self, config: Config, size: int = 1):
        first = create_predictor(config)
        self._predictors = [first, *(first.clone() for _ in range(size - 1))]

    def retrive(self, index: int) -> Predictor:
        """The predictor at an index. (The spelling is Paddle's.)"""
        return self._predictors[index]

    retrieve = retrive


def create_predictor(config: AnalysisConfig) -> Predictor:
    """Load a model and prepare it to run. Raises the errors of ``fluid.io.load_inference_model``."""
    return Predictor(config)


def get_version() -> str:
    """The Paddle release whose programs are supported."""
    return "version: 2.6.2"


def get_num_bytes_of_data_type(dtype: PaddleDType) -> int:
    """The size of an element in bytes."""
    return paddle_dtype_size(dtype)
