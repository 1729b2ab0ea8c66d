"""Quantization of the weights of a saved model, for smaller files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax import io
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import Scope, global_scope
from fluidjax.contrib.slim.quantization.ops import CONVOLUTIONS, held
from fluidjax.contrib.slim.quantization.thresholds import rare_threshold
from fluidjax.executor import Executor
from fluidjax.framework import Operator


class WeightQuantization:
    """Quantizes the weights of a saved model.

    Args:
        model_dir, model_filename, params_filename: as for ``load_inference_model``.
    """

    _supported_quantizable_op_type = ["conv2d", "depthwise_conv2d", "mul"]
    _supported_weight_quantize_type = ["channel_wise_abs_max", "abs_max"]

    def __init__(self, model_dir: str, model_filename: str | None = None, params_filename: str | None = None):
        self._model_dir, self._model_filename, self._params_filename = model_dir, model_filename, params_filename

    def quantize_weight_to_int(
        self,
        save_model_dir: str,
        save_model_filename: str | None = None,
        save_params_filename: str | None = None,
        quantizable_op_type: Sequence[str] = ["conv2d", "mul"],  # noqa: B006  (Fluid's default, never changed)
        weight_bits: int = 8,
        weight_quantize_type: str = "channel_wise_abs_max",
        generate_test_model: bool = False,
        threshold_rate: float = 0.0,
    ) -> None:
        """Save the model with int8 or int16 weights to ``quantized_model``, a subdirectory of ``save_model_dir``.

        Each op stores the scales in an attribute ``<weight>_quant_scale``, which engines use for dequantization.

        Args:
            save_model_dir, save_model_filename, save_params_filename: as for ``save_inference_model``.
            quantizable_op_type: a subset of conv2d, depthwise_conv2d and mul.
            weight_bits: 8 or 16.
            weight_quantize_type: "channel_wise_abs_max" or "abs_max".
            generate_test_model: also save the model with dequantized float32 weights, as ``test_model``.
            threshold_rate: for abs_max, the fraction of values that may be clipped.

        Raises AssertionError for unsupported settings.
        """
        _check("quantizable_op_type", [*quantizable_op_type], self._supported_quantizable_op_type)
        _check("weight_bits", [weight_bits], [8, 16])
        _check("weight_quantize_type", [weight_quantize_type], self._supported_weight_quantize_type)
        for folder, back in (("quantized_model", False), ("test_model", True))[: 1 + generate_test_model]:
            exe, files = Executor(CPUPlace()), (self._model_dir, self._model_filename, self._params_filename)
            program, feeds, fetches = io.load_inference_model(files[0], exe, *files[1:])
            persistable = {var.name for var in program.list_vars() if var.persistable}
            for op in [op for block in program.blocks for op in block.ops if op.type in quantizable_op_type]:
                for name in [name for name in op.input_arg_names if name in persistable]:
                    _round(global_scope(), op, name, weight_bits, weight_quantize_type, threshold_rate, back)
            to = os.path.join(save_model_dir, folder)
            io.save_inference_model(to, feeds, fetches, exe, program, save_model_filename, save_params_filename)


def _round(scope: Scope, op: Operator, name: str, bits: int, kind: str, rate: float, back: bool) -> None:
    tensor = held(scope, name)
    weight = np.array(tensor)
    largest, short = (1 << (bits - 1)) - 1, np.int8 if bits == 8 else np.int16
    if kind == "abs_max":
        bound = float(np.max(np.abs(weight))) if abs(rate) < 1e-10 else rare_threshold(weight, rate)
        weight, scales = np.clip(weight, -bound, bound), np.array([bound / largest])
        divisor = scales[0]
    else:
        axis = 0 if op.type in CONVOLUTIONS else weight.ndim - 1
        others = tuple(at for at in range(weight.ndim) if at != axis)
        scales = np.max(np.abs(weight), axis=others).astype(np.float64) / largest
        divisor = np.expand_dims(scales, others).astype(weight.dtype)
    rounded = np.around(weight / divisor.astype(weight.dtype)).astype(short)
    tensor.set((rounded * divisor).astype(np.float32) if back else rounded, CPUPlace())
    op._set_attr("quantization_type", f"post_weight_{kind}")
    op._set_attr("quantize_weight_bits", bits)
    op._set_attr(f"{name}_quant_scale", [float(scale) for scale in scales])


def _check(what: str, received: list[Any], supported: list[Any]) -> None:
    for one in received:
        if one not in supported:
            raise AssertionError(f"{what}: {one} is not supported. Expected some of {supported}. Take one of these.")
