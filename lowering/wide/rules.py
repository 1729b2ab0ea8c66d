"""For ops whose inputs have spare room, which axes the results have and what the op combines: see the package.

A rule inspects one call and returns the wide axes of each output slot ("*" for all that are not named); None if the
op cannot take its inputs wide. Gradient ops need no rules: a gradient has the axes of its forward variable. Only the
rules in ``GATHERING``, for ops that combine positions, are used for them too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lowering.values import Axis
from lowering.wide.along import ALONG
from lowering.wide.boxes import BOXES, COUNTED_BOXES
from lowering.wide.fills import highest, lowest
from lowering.wide.given import whole
from lowering.wide.losses import LOSSES, alike
from lowering.wide.meet import ELEMENTWISE, first_dims
from lowering.wide.norms import NORMS
from lowering.wide.shapes import LAYOUTS, Found, Rule, in_front, of_xshape, off, off_last
from lowering.wide.widen import FINITE_PLACES
from lowering.wide.windows import BESIDE_ROWS, INTERPOLATIONS, WINDOWS

if TYPE_CHECKING:
    from lowering.wide.call import Call


# Position by position: results at unused positions are meaningless, but these ops put copies of used ones there.
_PLACES = FINITE_PLACES | frozenset(
    "brelu ceil clip cos exp fill_any_like floor hard_shrink hard_sigmoid hard_swish log logical_not pow reciprocal"
    " round rsqrt sign sin soft_relu softshrink sqrt stanh tanh_shrink thresholded_relu"
    " acos acosh asin asinh atan atanh bitwise_not celu cosh erf expm1 lgamma log10 log1p log2 logit mish selu silu"
    " sinh tan trunc".split()
)
_ALIKE = frozenset(
    "sum minus logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor where"
    " bce_loss hinge_loss huber_loss log_loss margin_rank_loss modified_huber_loss rank_loss".split()
)


def _same(call: Call) -> Found:
    return {"*": call.axes("X"), "XShape": of_xshape(call.axes("X"))} if call.only("X") else None


def _paired(call: Call) -> Found:
    """Y is aligned with X from a dim on; where one has spare room, the other has as much, or a single element."""
    shapes = {slot: call.shape(slot) for slot in ("X", "Y")}
    begins = first_dims(call)
    found = {slot: {axis._replace(dim=axis.dim + begins[slot]) for axis in call.axes(slot)} for slot in shapes}
    for slot, other in (("X", "Y"), ("Y", "X")):
        for axis in found[slot] - found[other]:
            at = axis.dim - begins[other]
            if 0 <= at < len(shapes[other]) and shapes[other][at] != 1:
                return None
    return {"*": tuple(found["X"] | found["Y"])}


def _rows(slot: str, attr: str) -> Rule:
    """A product of the dims before ``attr``, as rows, with a matrix."""

    def rule(call: Call) -> Found:
        split = int(call.attr(attr))
        wise = call.only(slot) and all(axis.dim < split for axis in call.axes(slot))
        return {"*": call.axes(slot)} if wise else None

    return rule


def _matmul(call: Call) -> Found:
    """Batches of X and Y are paired; the summed dim has zeros at unused positions."""
    x, y = call.shape("X"), call.shape("Y")
    plain = int(call.attr("head_number")) == 1 and not call.attr("fused_reshape_Out")
    return _products(call, x, y, call.attr("transpose_X"), call.attr("transpose_Y")) if plain else None


def _matmul_v2(call: Call) -> Found:
    return _products(call, call.shape("X"), call.shape("Y"), call.attr("trans_x"), call.attr("trans_y"))


def _bmm(call: Call) -> Found:
    return _products(call, call.shape("X"), call.shape("Y"), False, False)


def _products(call: Call, x: Sequence[int], y: Sequence[int], turned_x: bool, turned_y: bool) -> Found:
    if len(x) < 2 or len(y) < 2 or (len(x) != len(y) and 2 not in (len(x), len(y))):
        return None
    rank = max(len(x), len(y))
    found: dict[str, list[Axis]] = {"X": [], "Y": []}  # the axes with the dims of the product, K after its last
    for slot, shape, turned in (("X", x, turned_x), ("Y", y, turned_y)):
        inner = len(shape) - 2 if (slot == "X") == bool(turned) else len(shape) - 1
        for axis in call.axes(slot):
            dim = rank if axis.dim == inner else axis.dim + rank - len(shape)
            if dim < rank and axis.dim >= len(shape) - 2:
                dim = rank - 2 if slot == "X" else rank - 1
            found[slot].append(axis._replace(dim=dim))
            if dim == rank:
                call.fills[slot, axis] = 0
    shared = [{a for a in axes if a.dim not in (rank - 2, rank - 1)} for axes in found.values()]
    if shared[0] != shared[1] and not _one_matrix(shared, x, y):
        return None
    return {"*": tuple({a for axes in found.values() for a in axes if a.dim < rank})}


def _one_matrix(shared: Sequence[set[Axis]], x: Sequence[int], y: Sequence[int]) -> bool:
    """Whether one side is a matrix multiplied by all batches of the other."""
    rank = max(len(x), len(y))
    inner = [{a for a in axes if a.dim == rank} for axes in shared]
    return inner[0] == inner[1] and len(x) != len(y) and not (shared[0] if len(x) < rank else shared[1]) - inner[0]


def _reduced(neutral: Callable[[Any], Any], *, mean: bool = False) -> Rule:
    def rule(call: Call) -> Found:
        rank = len(call.shape("X"))
        dims = {d % rank for d in call.attr("dim")} if rank else set()
        dims = set(range(rank)) if call.attr("reduce_all") else dims
        return _reduction(call, dims, bool(call.attr("keep_dim")), neutral, mean)

    return rule


def _reduction(call: Call, dims: set[int], keep: bool, neutral: Callable[[Any], Any], mean: bool) -> Found:
    (x,) = call.each("X")
    joined = [axis for axis in call.axes("X") if axis.dim in dims]
    call.fills.update({("X", axis): neutral(x.dtype) for axis in joined})
    if mean and not np.issubdtype(x.dtype, np.floating):
        return None
    call.share = tuple(joined) if mean else ()
    left = [axis for axis in call.axes("X") if axis.dim not in dims]
    return {"*": left if keep else [a._replace(dim=a.dim - sum(d < a.dim for d in dims)) for a in left]}


def _mean(call: Call) -> Found:
    return _reduction(call, set(range(len(call.shape("X")))), False, lambda _: 0, True)


def _quantized(call: Call) -> Found:
    """Steps of a scale that the largest number decides."""
    if not call.only("X"):
        return None
    call.fills.update({("X", axis): 0 for axis in call.axes("X")})
    call.refilled = True
    return {"Out": call.axes("X")}


def _softmax(call: Call) -> Found:
    (x,) = call.each("X") or [None]
    if x is None or not call.only("X"):
        return None
    along = int(call.attr("axis")) % len(x.shape)
    for axis in call.axes("X"):
        if axis.dim == along:
            call.fills["X", axis] = lowest(x.dtype)
            call.refilled = True
    return {"*": call.axes("X")}


def _lookup(call: Call) -> Found:
    return {"*": call.axes("Ids")} if call.only("Ids") and in_front(call.axes("Ids"), call.shape("Ids")) else None


def _one_hot(call: Call) -> Found:
    return {"*": call.axes("X")} if call.only("X") and in_front(call.axes("X"), call.shape("X")) else None


def _unit(*rows: str) -> Rule:
    """One step of a recurrence on rows, which are paired."""

    def rule(call: Call) -> Found:
        axes = {call.axes(slot) for slot in rows}
        wise = len(axes) == 1 and call.only(*rows) and all(axis.dim == 0 for axis in call.axes(rows[0]))
        return {"*": call.axes(rows[0])} if wise else None

    return rule


def _batch_like(call: Call) -> Found:
    """Filled with one number, with the size of one dim, which may be wide."""
    source, target = int(call.attr("input_dim_idx")), int(call.attr("output_dim_idx"))
    return {"*": [a._replace(dim=target) for a in call.axes("Input") if a.dim == source]}


def _drawn_like(call: Call) -> Found:
    """Drawn with the size of one dim: the op draws what it would for the used places, and says which these are."""
    source = int(call.attr("input_dim_idx"))
    if any(axis.dim == source and not whole(axis, call.shape("Input")) for axis in call.axes("Input")):
        return None
    call.kept.add("Input")
    return {"*": ()}


def _drawn_in(slot: str) -> Rule:
    """Drawn in the shape of one value: the op draws what it would for the used places, and says which these are."""

    def rule(call: Call) -> Found:
        if call.op.attrs.get("diag_num") or not all(whole(axis, call.shape(slot)) for axis in call.axes(slot)):
            return None
        call.kept.add(slot)
        return {"*": ()}

    return rule


def _unpad(call: Call) -> Found:
    return {"*": ()} if call.only("X") and all(a.dim == 1 and a.inner == 1 for a in call.axes("X")) else None


def _nothing(call: Call) -> Found:
    return None


def _drawn_off_axis(call: Call) -> Found:
    """Drawn in the shape of X, and the largest along a dim that is not wide."""
    return None if off("X")(call) is None else _drawn_in("X")(call)


QUANTIZATIONS = frozenset(
    "fake_quantize_abs_max fake_quantize_dequantize_abs_max fake_quantize_moving_average_abs_max"
    " fake_quantize_dequantize_moving_average_abs_max moving_average_abs_max_scale".split()
)

RULES: dict[str, Rule] = {
    **dict.fromkeys(_PLACES, _same),
    **dict.fromkeys(ELEMENTWISE, _paired),
    **dict.fromkeys(_ALIKE, alike),
    **LAYOUTS,
    **WINDOWS,
    **ALONG,
    **BOXES,
    **LOSSES,
    **NORMS,
    "dropout": _same,
    "mul": _rows("X", "x_num_col_dims"),
    "fc": _rows("Input", "in_num_col_dims"),
    "matmul": _matmul,
    "matmul_v2": _matmul_v2,
    "bmm": _bmm,
    "mean": _mean,
    "reduce_sum": _reduced(lambda _: 0),
    "reduce_mean": _reduced(lambda _: 0, mean=True),
    "reduce_max": _reduced(lowest),
    "reduce_min": _reduced(highest),
    "reduce_prod": _reduced(lambda _: 1),
    "reduce_all": _reduced(lambda _: True),
    "reduce_any": _reduced(lambda _: False),
    **dict.fromkeys(QUANTIZATIONS, _quantized),
    "softmax": _softmax,
    "log_softmax": off("X"),
    "norm": off("X"),
    "label_smooth": off_last,
    "lookup_table": _lookup,
    "lookup_table_v2": _lookup,
    "one_hot": _one_hot,
    "one_hot_v2": _one_hot,
    "fill_constant_batch_size_like": _batch_like,
    "gaussian_random_batch_size_like": _drawn_like,
    "uniform_random_batch_size_like": _drawn_like,
    **dict.fromkeys(["uniform_random_inplace", "exponential", "bernoulli", "rrelu"], _drawn_in("X")),
    "gumbel_softmax": _drawn_off_axis,
    "gaussian_inplace": _drawn_in("x"),
    "gru_unit": _unit("Input", "HiddenPrev"),
    "lstm_unit": _unit("X", "C_prev"),
    "sequence_pad": _nothing,
    "sequence_unpad": _unpad,
}

GATHERING = (
    INTERPOLATIONS
    | BESIDE_ROWS
    | COUNTED_BOXES
    | frozenset(
        "batch_norm instance_norm group_norm row_conv softmax_with_cross_entropy concat pad2d"
        " conv2d conv3d depthwise_conv2d deformable_conv deformable_conv_v1 conv2d_transpose"
        " depthwise_conv2d_transpose pool2d pool3d gather"
        " gather_nd slice matmul matmul_v2 bmm mean reduce_sum reduce_mean reduce_max reduce_min reduce_prod".split()
    )
)
