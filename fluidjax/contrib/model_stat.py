"""A table of a Program's parameters and floating-point operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import NamedTuple

from fluidjax.framework import Operator, Program, Variable

__all__ = ["summary"]

_HEAD = ("No.", "TYPE", "INPUT", "OUTPUT", "PARAMs", "FLOPs")
_ACTIVATIONS = ("sigmoid", "tanh", "relu", "leaky_relu", "prelu")

# Recurrent op: the slots of its input, its output and its parameters.
_RECURRENT = {
    "lstm": ("Input", "Hidden", "Weight", "Bias"),
    "lstmp": ("Input", "Projection", "Weight", "ProjWeight", "Bias"),
    "gru": ("Input", "Hidden", "Weight", "Bias"),
    "gru_unit": ("Input", "Hidden", "Weight", "Bias"),
    "cudnn_lstm": ("Input", "Out", "W"),
}


class Count(NamedTuple):
    """One op, per sample: shapes without the batch dimension, parameters, and operations (None: unknown)."""

    type: str
    input: tuple[int, ...]
    output: tuple[int, ...]
    params: tuple[Variable, ...]
    flops: int | None


def summary(main_prog: Program) -> None:
    """Print a table of the main compute ops, with their parameters and floating-point operations per sample.

    Operations are counted in Fluid's units: for a convolution, 2 per weight and output position; for batch_norm, 2 per
    element; for pool2d, one per element of each window; for an activation, one per element; for mul, one per weight and
    row. Recurrent layers, which Fluid omits, count one per weight used in a step; for variable-length sequences, a
    sample is a single step. Other ops are not listed. A parameter shared by several ops is counted once in the
    total.

    Args:
        main_prog: a Program. The first dimension of every variable is taken to be the batch; for an op with further
            unknown dimensions, no number of operations is given.

    Raises:
        TypeError: not a Program.
    """
    if not isinstance(main_prog, Program):
        raise TypeError(f"summary takes a Program, received {type(main_prog)}. Pass fluid.default_main_program().")
    counts = [_RULES[op.type](op) for block in main_prog.blocks for op in block.ops if op.type in _RULES]
    params = sum(prod(var.shape) for var in {v.name: v for count in counts for v in count.params}.values())
    flops = sum(count.flops for count in counts if count.flops is not None)
    print(_table([_HEAD, *(_cells(i, count) for i, count in enumerate(counts))]))
    print(f"Total PARAMs: {params}({params / 1e6:.4f}M)")
    print(f"Total FLOPs: {flops}({flops / 1e9:.2f}G)")
    unknown = sum(count.flops is None for count in counts)
    if unknown:
        print(f"Without {unknown} ops whose shapes the program leaves open.")
    named = ["conv2d", "depthwise_conv2d", "mul", "batch_norm", "pool2d", *_RECURRENT]
    print(f"Counted are {', '.join(named)} and {', '.join(_ACTIVATIONS)}.")


def _cells(number: int, count: Count) -> tuple[str, ...]:
    params = sum(prod(var.shape) for var in count.params)
    flops = "-" if count.flops is None else str(count.flops)
    return (str(number), count.type, str(count.input), str(count.output), str(params), flops)


def _table(rows: list[tuple[str, ...]]) -> str:
    """Right-aligned cells in a frame of dashes."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = ["| " + " | ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])


def _var(op: Operator, slot: str) -> Variable:
    names = op.input(slot) if slot in op.input_names else op.output(slot)
    return op.block._var_recursive(names[0])


def _count(op: Operator, ends: tuple[str, str], weights: Iterable[str], factors: Iterable[int]) -> Count:
    """Count an op; ``ends`` are its input and output slots, and operations the product of ``factors``."""
    source, out = (tuple(_var(op, slot).shape[1:]) for slot in ends)
    sizes = list(factors)
    params = tuple(var for var in (_var(op, slot) for slot in weights) if var.persistable)
    return Count(op.type, source, out, params, None if any(size < 0 for size in sizes) else prod(sizes))


def _conv(op: Operator) -> Count:
    """2 * output positions * weights; the filter's channels are already those of a single group."""
    return _count(
        op,
        ("Input", "Output"),
        ["Filter"],
        [2, *_var(op, "Output").shape[2:], *_var(op, "Filter").shape],
    )


def _pool(op: Operator) -> Count:
    """Elements of the output * elements of a window."""
    out = _var(op, "Out").shape[1:]
    # A global window is the input, and those of adaptive pooling cover it once.
    whole = op.attr("global_pooling") or op.attr("adaptive")
    factors = [out[0], *_var(op, "X").shape[2:]] if whole else [*out, *op.attr("ksize")]
    return _count(op, ("X", "Out"), [], factors)


def _mul(op: Operator) -> Count:
    rows = _var(op, "X").shape[1 : op.attr("x_num_col_dims")]
    return _count(op, ("X", "Out"), ["Y"], [*rows, *_var(op, "Y").shape])


def _batch_norm(op: Operator) -> Count:
    return _count(op, ("X", "Y"), ["Scale", "Bias"], [2, *_var(op, "Y").shape[1:]])


def _activation(op: Operator) -> Count:
    weights = ["Alpha"] if op.type == "prelu" else []
    return _count(op, ("X", "Out"), weights, _var(op, "Out").shape[1:])


def _recurrent(op: Operator) -> Count:
    """The products of every step, or of all steps if the program's shapes include them."""
    source, out, *weights = _RECURRENT[op.type]
    multiplied = [_var(op, slot) for slot in weights if slot != "Bias"]
    steps = _var(op, source).shape[0] if op.type == "cudnn_lstm" else 1
    found = _count(op, (source, out), [slot for slot in weights if op.input(slot)], [])
    flops = steps * sum(prod(var.shape) for var in multiplied)
    return found._replace(flops=None if flops < 0 else flops)


_RULES: dict[str, Callable[[Operator], Count]] = {
    "conv2d": _conv,
    "depthwise_conv2d": _conv,
    "pool2d": _pool,
    "mul": _mul,
    "batch_norm": _batch_norm,
    **dict.fromkeys(_RECURRENT, _recurrent),
    **dict.fromkeys(_ACTIVATIONS, _activation),
}
