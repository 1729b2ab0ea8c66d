"""Conversion of programs with fake quantization to integer arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.base.scope import Scope
from fluidjax.contrib.quantize import names
from fluidjax.contrib.quantize.insertion import Settings
from fluidjax.core import VarDesc
from fluidjax.framework import Block, Operator, Program, Variable


def _read(scope: Scope, name: str) -> np.ndarray:
    found = scope.find_var(name)
    if found is None:
        raise ValueError(
            f"the scope has no variable {name!r}, which the quantized program needs. Pass the scope that the training"
            " program ran in."
        )
    return np.array(found.get_tensor())


def _persistable(program: Program) -> set[str]:
    return {var.name for var in program.list_vars() if var.persistable}


class Freezing:
    """Freezes a program: rounds the weights in the scope, and rescales the result of each op."""

    def __init__(self, program: Program, place: Any, scope: Scope, settings: Settings) -> None:
        self._program = program
        self._place = place
        self._scope = scope
        self._settings = settings
        self._weights = _persistable(program)
        self._weight_scales: dict[str, float] = {}

    def run(self) -> None:
        """Rewrite all blocks."""
        for block in self._program.blocks:
            originals = self._strip(block)
            self._scale_back(block, originals)
        names.drop_unused(self._program)

    def _strip(self, block: Block) -> set[str]:
        """Remove what only training needs, and fix the weights; returns the quantized activations."""
        activations: set[str] = set()
        renamed: dict[str, str] = {}
        for op in list(block.ops):
            for name in list(op.input_arg_names):
                if name in renamed:
                    op._rename_input(name, renamed[name])
            if op.type in names.QUANTIZE_OPS:
                (source,), (rounded,) = op.input("X"), op.output("Out")
                if source in self._weights:
                    self._round(source, op.type)
                    renamed[rounded] = source
                    block._remove_op(names.position(block, op))
                else:
                    activations.add(source)
                    if op.has_attr("is_test"):
                        op._set_attr("is_test", True)
            elif op.type == names.DEQUANTIZE_OP:
                renamed[op.output("Out")[0]] = op.input("X")[0]
                block._remove_op(names.position(block, op))
        return activations

    def _round(self, name: str, op_type: str) -> None:
        if name in self._weight_scales:
            return
        weight = _read(self._scope, name)
        if op_type == "fake_quantize_abs_max":
            scale = float(np.max(np.abs(weight)))
        else:
            scale = float(_read(self._scope, names.scale(name)).ravel()[0])
        self._weight_scales[name] = scale
        steps = names.largest(self._settings.weight_bits)
        rounded = np.round(weight / scale * steps).astype(weight.dtype)
        self._scope.var(name).get_tensor().set(rounded, self._place)

    def _scale_back(self, block: Block, activations: set[str]) -> None:
        renamed: dict[str, str] = {}
        scaled = {names.quantized(name): names.scale(name) for name in activations}
        for op in list(block.ops):
            for name in list(op.input_arg_names):
                if name in renamed:
                    op._rename_input(name, renamed[name])
            if op.type in names.QUANTIZABLE and any(name in scaled for name in op.input_arg_names):
                out = self._append(block, op, scaled)
                renamed[out.name] = names.dequantized(out.name)

    def _append(self, block: Block, op: Operator, scaled: dict[str, str]) -> Variable:
        inputs = list(names.inputs_of(op))
        weights = [name for name in inputs if name in self._weight_scales]
        activation = next(name for name in inputs if name in scaled)
        if len(weights) != 1:
            raise ValueError(
                f"op {op.type!r} in block {block.idx} reads {inputs}, of which {weights} are quantized weights:"
                " freezing needs exactly one weight in each quantized op. Keep products of two activations out of the"
                " program that is frozen."
            )
        steps = names.largest(self._settings.weight_bits) * names.largest(self._settings.activation_bits)
        out = block.var(op.output(op.output_names[0])[0])
        block._insert_op(
            names.position(block, op) + 1,
            type=names.DEQUANTIZE_OP,
            inputs={"X": out, "Scale": block.var(scaled[activation])},
            outputs={
                "Out": block.create_var(
                    name=names.dequantized(out.name), type=out.type, shape=out.shape, dtype=out.dtype
                )
            },
            attrs={"max_range": steps / self._weight_scales[weights[0]]},
        )
        return out


def to_int8(program: Program, place: Any, scope: Scope) -> None:
    """Store the rounded weights of quantized ops as int8 variables ``<name>.int8``."""
    weights = _persistable(program)
    for block in program.blocks:
        for op in block.ops:
            if op.type in names.QUANTIZABLE:
                for name in [name for name in names.inputs_of(op) if name in weights]:
                    op._rename_input(name, _int8(program, name, place, scope))
    names.drop_unused(program)


def _int8(program: Program, name: str, place: Any, scope: Scope) -> str:
    short, block = f"{name}.int8", program.global_block()
    if not block.has_var(short):
        wide = block.var(name)
        block.create_var(name=short, type=wide.type, shape=wide.shape, dtype=VarDesc.VarType.INT8, persistable=True)
        scope.var(short).get_tensor().set(_read(scope, name).astype(np.int8), place)
    return short
