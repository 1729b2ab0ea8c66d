"""Names of variables in quantized programs, and the list of quantized ops."""

from __future__ import annotations

from collections.abc import Iterator

from fluidjax.framework import Block, Operator, Program

QUANTIZABLE = ("conv2d", "depthwise_conv2d", "mul")
KINDS = ("abs_max", "range_abs_max", "moving_average_abs_max")
QUANTIZE_OPS = tuple(f"fake_quantize_{kind}" for kind in KINDS)
DEQUANTIZE_OP = "fake_dequantize_max_abs"


def quantized(name: str) -> str:
    """The name of the quantized values of a variable."""
    return f"{name}.quantized"


def dequantized(name: str) -> str:
    """The name of the dequantized values."""
    return f"{name}.dequantized"


def scale(name: str) -> str:
    """The name of a variable's scale."""
    return f"{name}.scale"


def original(name: str) -> str:
    """The name of the variable that a quantized, dequantized or scale name was made from; another name as it is."""
    for suffix in (dequantized(quantized("")), quantized(""), dequantized(""), scale("")):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def largest(bits: int) -> int:
    """The largest signed integer with that many bits."""
    return (1 << (bits - 1)) - 1


def inputs_of(op: Operator) -> Iterator[str]:
    """An op's inputs, slots in alphabetical order: the order in which Fluid rewrites them."""
    for slot in sorted(op.input_names):
        yield from op.input(slot)


def position(block: Block, op: Operator) -> int:
    """The index of an op in its block."""
    return next(index for index, other in enumerate(block.ops) if other is op)


def drop_unused(program: Program) -> None:
    """Remove variables that no op of the program reads or writes."""
    used: set[str] = set()
    for block in program.blocks:
        for op in block.ops:
            used.update(op.input_arg_names, op.output_arg_names)
    for block in program.blocks:
        for name in [name for name in block.vars if name not in used]:
            block._remove_var(name)
