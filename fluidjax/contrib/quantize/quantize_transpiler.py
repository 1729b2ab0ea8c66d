"""Quantization-aware training: rewrites a Program to round weights and activations."""

from __future__ import annotations

from typing import Any

from fluidjax.base.scope import Scope
from fluidjax.contrib.quantize import names
from fluidjax.contrib.quantize.freezing import Freezing, to_int8
from fluidjax.contrib.quantize.insertion import Insertion, Settings
from fluidjax.executor import global_scope
from fluidjax.framework import Program, default_main_program, default_startup_program, program_guard
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._nn.step_counter import autoincreased_step_counter
from lowering.registry import get_op

__all__ = ["QuantizeTranspiler"]

# Fluid's names for these: tests of quantized programs find weights by them.
_quantized_var_name = names.quantized
_dequantized_var_name = names.dequantized
_quantized_scale_name = names.scale
_original_var_name = names.original


class QuantizeTranspiler:
    """Makes the conv2d, depthwise_conv2d and mul ops of a program read rounded inputs.

    An input x becomes round(x / s * m) * s / m with m = 2^(bits - 1) - 1 and a scale s. Types of scale: ``abs_max``,
    the largest |x| in the batch; ``range_abs_max``, the largest in the last ``window_size`` batches;
    ``moving_average_abs_max``, a moving average with decay ``moving_rate``.

    Args:
        weight_bits, activation_bits: bit widths of parameters and of all other inputs.
        activation_quantize_type, weight_quantize_type: type of scale.

    Raises:
        ValueError: an unknown type.
    """

    def __init__(
        self,
        weight_bits: int = 8,
        activation_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        window_size: int = 10000,
        moving_rate: float = 0.9,
    ) -> None:
        kinds = {"weight": weight_quantize_type, "activation": activation_quantize_type}
        for what, kind in kinds.items():
            if kind not in names.KINDS:
                raise ValueError(
                    f"QuantizeTranspiler: {what}_quantize_type {kind!r} is unknown. Choose one of {list(names.KINDS)}."
                )
        self._settings = Settings(
            weight_bits, activation_bits, weight_quantize_type, activation_quantize_type, window_size, moving_rate
        )
        self._helper = LayerHelper("QuantizeTranspiler")

    def training_transpile(self, program: Program | None = None, startup_program: Program | None = None) -> None:
        """Insert fake quantization into a training program, in place; its gradient ops use the rounded inputs.

        Args:
            program: with or without the backward pass (default: the default main program).
            startup_program: receives the initial values of running scales.

        Raises:
            ValueError: a gradient op without its forward op.
        """
        program = program or default_main_program()
        with program_guard(program, startup_program or default_startup_program()):
            uses_steps = "range_abs_max" in (self._settings.weight_kind, self._settings.activation_kind)
            step = autoincreased_step_counter() if uses_steps else None
            weights = {param.name for param in program.global_block().all_parameters()}
            for block in program.blocks:
                insertion = Insertion(block, self._settings, weights, self._helper, step)
                for op in list(block.ops):
                    forward = get_op(op.type).forward
                    if op.type in names.QUANTIZABLE:
                        insertion.forward(op)
                    elif forward is not None and forward.type in names.QUANTIZABLE:
                        insertion.backward(op)

    def freeze_program(self, program: Program, place: Any, scope: Scope | None = None) -> None:
        """Make a transpiled inference program compute with integers, in place.

        Weights are rounded in the scope (remaining float tensors), running scales are fixed, and each quantized op is
        followed by one fake_dequantize_max_abs.

        Args:
            program: a ``clone(for_test=True)`` of the transpiled program.
            place: where to place the weights.
            scope: holds the trained values (default: the global scope).

        Raises:
            ValueError: a quantized op does not have exactly one weight, or a variable is missing from the scope.
        """
        program = program or default_main_program()
        Freezing(program, place, scope or global_scope(), self._settings).run()

    def convert_to_int8(self, program: Program, place: Any, scope: Scope | None = None) -> None:
        """Replace the weights of a frozen program by int8 weights, in place, for a smaller saved model.

        Args:
            program: the result of ``freeze_program``.
            place: where to place the weights.
            scope: holds the values (default: the global scope).
        """
        to_int8(program or default_main_program(), place, scope or global_scope())
