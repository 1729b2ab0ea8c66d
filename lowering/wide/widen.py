"""Which batches made by ``sequence_pad`` may be wider than their longest sequence.

The longest length is part of a shape, and each length would be compiled. If every op between ``sequence_pad`` and
``sequence_unpad`` works position by position, or step by step, additional positions after the longest sequence change
nothing: what is computed there is cut off again, and its gradient is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from lowering.program import EMPTY, OpView, ProgramView, forward_name
from lowering.registry import get_op

Axes = dict[str, int]  # names of the widened variables, and their widened axes
Rule = Callable[[OpView, Axes, ProgramView], "Mapping[str, int] | None"]

# Position by position, and finite with finite gradients for any finite padding: more of it does no harm.
FINITE_PLACES = frozenset(
    "relu relu6 tanh sigmoid logsigmoid softplus softsign leaky_relu elu gelu swish square abs scale cast assign"
    " fill_zeros_like".split()
)
_ELEMENTWISE = frozenset(f"elementwise_{name}" for name in "add sub mul div max min".split())


def pads_to_longest(op: OpView) -> bool:
    """Whether an op is a ``sequence_pad`` to the longest sequence of its batch."""
    return op.type == "sequence_pad" and int(op.attrs.get("padded_length", -1)) < 0


def widened(program: ProgramView, fetches: Collection[str]) -> frozenset[int]:
    """Indices of the ``sequence_pad`` ops of the outermost block that may be made wider than they need.

    All of them or none: ops not known to keep positions apart, and fetches, require the true width.
    """
    axes: Axes = {}
    found = []
    for op in program.blocks[0].ops:
        if pads_to_longest(op):
            found.append(op.index)
            axes.update({name: 1 for name in op.outputs["Out"]})
        elif any(name in axes for name in op.input_names()):
            outputs = _follow(op, axes, program)
            if outputs is None:
                return frozenset()
            axes.update(outputs)
    kept = (name for name in axes if (var := program.find_var(0, name)) is None or var.persistable)
    return frozenset() if any(True for _ in kept) or set(fetches) & set(axes) else frozenset(found)


def _follow(op: OpView, axes: Axes, program: ProgramView) -> Mapping[str, int] | None:
    """The widened outputs of an op with widened inputs; None if it cannot take them."""
    forward = get_op(op.type).forward
    type = op.type if forward is None else forward.type
    if forward is not None and (type in _RULES or type == "sequence_pad"):
        # A gradient has the shape of its forward variable, and is zero at the additional positions.
        return {n: axes[forward_name(n)] for n in op.output_names() if forward_name(n) in axes}
    rule = _RULES.get(type)
    return None if rule is None else rule(op, axes, program)


def _one(op: OpView, slot: str) -> str:
    names = op.inputs.get(slot) or [EMPTY]
    return names[0]


def _only(op: OpView, axes: Axes, *slots: str) -> bool:
    """Whether no slot other than these has a widened variable."""
    return not any(name in axes for slot, names in op.inputs.items() if slot not in slots for name in names)


def _rank(program: ProgramView, name: str) -> int:
    var = program.find_var(0, name)
    return len(var.shape) if var is not None else 0


def _same(op: OpView, axes: Axes, program: ProgramView) -> Mapping[str, int] | None:
    return dict.fromkeys(op.output_names(), axes[_one(op, "X")]) if _only(op, axes, "X") else None


def _sum(op: OpView, axes: Axes, program: ProgramView) -> Mapping[str, int] | None:
    found = {axes.get(name, -1) for name in op.inputs["X"]}
    return dict.fromkeys(op.output_names(), found.pop()) if len(found) == 1 and -1 not in found else None


def _elementwise(op: OpView, axes: Axes, program: ProgramView) -> Mapping[str, int] | None:
    x, y = _one(op, "X"), _one(op, "Y")
    if x not in axes or not _rank(program, x):
        return None
    start = int(op.attrs.get("axis", -1))
    start = start if start >= 0 else _rank(program, x) - _rank(program, y)
    if y in axes:
        fits = axes[y] + start == axes[x]
    else:
        var, at = program.find_var(0, y), axes[x] - start
        fits = var is not None and not (0 <= at < len(var.shape) and var.shape[at] != 1)
    return dict.fromkeys(op.output_names(), axes[x]) if fits else None


def _mul(op: OpView, axes: Axes, program: ProgramView) -> Mapping[str, int] | None:
    x = _one(op, "X")
    wise = _only(op, axes, "X") and int(op.attrs.get("x_num_col_dims", 1)) > axes[x]
    return dict.fromkeys(op.output_names(), axes[x]) if wise else None


def _off_axis(attr: str, default: int) -> Rule:
    """An op that works along the axis ``attr``, other than the widened ones."""

    def rule(op: OpView, axes: Axes, program: ProgramView) -> Mapping[str, int] | None:
        x = _one(op, "X")
        wise = _only(op, axes, "X") and int(op.attrs.get(attr, default)) % max(_rank(program, x), 1) != axes[x]
        return dict.fromkeys(op.output_names(), axes[x]) if wise else None

    return rule


def _transpose(op: OpView, axes: Axes, program: ProgramView) -> Mapping[str, int] | None:
    axis = axes[_one(op, "X")]
    shapes = dict.fromkeys(op.outputs.get("XShape") or (), axis + 1)
    return shapes | dict.fromkeys(op.outputs["Out"], list(op.attrs["axis"]).index(axis))


def _lookup(op: OpView, axes: Axes, program: ProgramView) -> Mapping[str, int] | None:
    ids = _one(op, "Ids")
    dense = _only(op, axes, "Ids") and not op.attrs.get("is_sparse") and not op.attrs.get("is_distributed")
    return dict.fromkeys(op.output_names(), axes[ids]) if dense else None


def _batch_like(op: OpView, axes: Axes, program: ProgramView) -> Mapping[str, int] | None:
    return {} if int(op.attrs.get("input_dim_idx", 0)) != axes[_one(op, "Input")] else None


def _unpad(op: OpView, axes: Axes, program: ProgramView) -> Mapping[str, int] | None:
    return {} if _only(op, axes, "X") and axes[_one(op, "X")] == 1 else None


def _recurrent(op: OpView, axes: Axes, program: ProgramView) -> Mapping[str, int] | None:
    steps = {axes.get(name) for name in op.inputs["inputs"]}
    if op.attrs.get("reverse") or steps != {0} or not _only(op, axes, "inputs"):
        return None
    return {name: 0 for name in op.outputs["outputs"] if name != EMPTY}


_RULES: dict[str, Rule] = {
    **dict.fromkeys(FINITE_PLACES, _same),
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    "sum": _sum,
    "mul": _mul,
    "softmax": _off_axis("axis", -1),
    "transpose": _transpose,
    "transpose2": _transpose,
    "lookup_table": _lookup,
    "lookup_table_v2": _lookup,
    "fill_constant_batch_size_like": _batch_like,
    "sequence_unpad": _unpad,
    "recurrent": _recurrent,
}
