"""Insertion of fake quantization into training programs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from fluidjax import unique_name
from fluidjax.contrib.quantize import names
from fluidjax.framework import Block, Operator, Variable
from fluidjax.initializer import Constant
from fluidjax.layer_helper import LayerHelper
from fluidjax.param_attr import ParamAttr

_FIRST_SCALE = 0.001


@dataclass(frozen=True)
class Settings:
    """Bit widths and types of quantization for weights and activations, and the settings of running scales."""

    weight_bits: int
    activation_bits: int
    weight_kind: str
    activation_kind: str
    window_size: int
    moving_rate: float

    def of(self, is_weight: bool) -> tuple[int, str]:
        """(bits, type) for a weight or an activation."""
        if is_weight:
            return self.weight_bits, self.weight_kind
        return self.activation_bits, self.activation_kind


@dataclass
class Insertion:
    """Rewrites the ops of one block; ``done`` maps a variable to what its quantizable readers read instead."""

    block: Block
    settings: Settings
    weights: Collection[str]
    helper: LayerHelper
    step: Variable | None
    done: dict[str, str] = field(default_factory=dict)

    def forward(self, op: Operator) -> None:
        """Make an op read quantized and dequantized inputs."""
        start = names.position(self.block, op)
        for name in list(names.inputs_of(op)):
            if name not in self.done:
                self.done[name] = self._fake(start, self.block.var(name))
            op._rename_input(name, self.done[name])

    def backward(self, op: Operator) -> None:
        """Make a gradient op read what its forward op reads, for a straight-through gradient."""
        read = [name for name in names.inputs_of(op) if name in self.done]
        if not read:
            raise ValueError(
                f"op {op.type!r} reads none of the quantized variables of block {self.block.idx}, although its forward"
                " op must be quantized. Transpile the program that minimize() was applied to, once."
            )
        for name in read:
            op._rename_input(name, self.done[name])

    def _fake(self, index: int, var: Variable) -> str:
        bits, kind = self.settings.of(var.name in self.weights)
        rounded = self._like(var, names.quantized(var.name))
        scale = getattr(self, f"_{kind}")(index, var, rounded, bits)
        restored = self._like(var, names.dequantized(rounded.name))
        self.block._insert_op(
            index + 1,
            type=names.DEQUANTIZE_OP,
            inputs={"X": rounded, "Scale": scale},
            outputs={"Out": restored},
            attrs={"max_range": float(names.largest(bits))},
        )
        return restored.name

    def _like(self, var: Variable, name: str) -> Variable:
        return self.block.create_var(name=name, type=var.type, shape=var.shape, dtype=var.dtype)

    def _abs_max(self, index: int, var: Variable, rounded: Variable, bits: int) -> Variable:
        scale = self.block.create_var(name=names.scale(var.name), type=var.type, shape=[1], dtype=var.dtype)
        outputs = {"Out": rounded, "OutScale": scale}
        self._insert(index, "abs_max", {"X": var}, outputs, {"bit_length": bits})
        return scale

    def _range_abs_max(self, index: int, var: Variable, rounded: Variable, bits: int) -> Variable:
        scale = self._running_scale(var)
        window = self._state("scales", [self.settings.window_size], var, 0.0)
        inputs = {"X": var, "InScale": scale, "Iter": self.step}
        outputs = {"Out": rounded, "OutScale": scale, "OutScales": window}
        attrs = {"window_size": self.settings.window_size, "bit_length": bits, "is_test": False}
        self._insert(index, "range_abs_max", inputs, outputs, attrs)
        return scale

    def _moving_average_abs_max(self, index: int, var: Variable, rounded: Variable, bits: int) -> Variable:
        state = self._state("state", [1], var, 1.0)
        accum = self._state("accum", [1], var, 1.0)
        scale = self._running_scale(var)
        inputs = {"X": var, "InScale": scale, "InState": state, "InAccum": accum}
        outputs = {"Out": rounded, "OutScale": scale, "OutState": state, "OutAccum": accum}
        attrs = {"bit_length": bits, "moving_rate": self.settings.moving_rate, "is_test": False}
        self._insert(index, "moving_average_abs_max", inputs, outputs, attrs)
        return scale

    def _insert(self, index: int, kind: str, inputs: dict, outputs: dict, attrs: dict) -> None:
        self.block._insert_op(index, type=f"fake_quantize_{kind}", inputs=inputs, outputs=outputs, attrs=attrs)

    def _running_scale(self, var: Variable) -> Variable:
        attr = ParamAttr(name=names.scale(var.name), initializer=Constant(_FIRST_SCALE), trainable=False)
        scale = self.helper.create_parameter(attr=attr, shape=[1], dtype=var.dtype)
        assert scale is not None
        scale.stop_gradient = True
        return scale

    def _state(self, prefix: str, shape: list[int], var: Variable, value: float) -> Variable:
        state = self.helper.create_global_variable(
            name=unique_name.generate(prefix), persistable=True, dtype=var.dtype, shape=shape
        )
        self.helper.set_variable_initializer(state, Constant(value=value, force_cpu=True))
        return state
