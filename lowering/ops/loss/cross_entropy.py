"""cross_entropy, cross_entropy2, softmax_with_cross_entropy and nll_loss.

Fluid's CPU softmax clips x - max(x) at -64, so no probability falls below e^-64 / sum; and the logarithm of zero is
taken as -1e20. Both are preserved.
"""

import jax
import jax.numpy as jnp
from jax import lax

from lowering.engine.checks import Demand
from lowering.engine.shapes.infer_rules import by_rule
from lowering.ops import fitting
from lowering.ops.math.extrema import at_least, exp_at_least
from lowering.ops.shared import no_elements, off_rows, transpose_of
from lowering.program import VarInfo
from lowering.registry import WISE, Long, op
from lowering.values import Meta

CLIP = -64.0
HUGE = 1e20
# jnp.take_along_axis, less its care for indices outside, which takes long to trace and to compile
_ONE_OF_EACH_ROW = lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,))


def shifted(x, axis):
    """x - max(x) along `axis`; softmax counts nothing of it below -64."""
    return x - lax.stop_gradient(x.max(axis=axis, keepdims=True))


def finite_log(p):
    """log(p), with infinities replaced by 1e20 (Fluid's TolerableValue), in float16 by its largest number."""
    huge = jnp.asarray(min(HUGE, float(jnp.finfo(p.dtype).max)), p.dtype)
    return jnp.clip(jnp.log(p), -huge, huge)


def pick(x, label):
    """(x[..., label], mask of labels inside) for labels [..., 1] along the last axis."""
    inside = (label >= 0) & (label < x.shape[-1])
    rows = x.reshape(-1, x.shape[-1])
    index = jnp.where(inside, label, 0).reshape(-1, 1)
    picked = lax.gather(rows, index, _ONE_OF_EACH_ROW, (1, 1), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)
    return picked.reshape(label.shape), inside


def class_labels(label, shape):
    """Labels as ``shape``, one a row. Raises ValueError where they are no class numbers, as probabilities are none."""
    several = label.ndim == len(shape) and any(n == 1 != m for n, m in zip(shape, label.shape, strict=True))
    if label.dtype.kind not in "iu" or several:
        raise ValueError(
            f"Label holds the number of a class for each row, int64{list(shape)}, received {label.dtype}"
            f"{list(label.shape)}; declare and feed it as that, or ask for soft_label=True if it holds probabilities"
        )
    return label.reshape(shape)


def _one_label_a_row(x, label):
    """Label has X's rows, with or without a last dim; ``class_labels`` says more of that one."""
    fitting.rank("Label", label, len(x.shape) - 1, len(x.shape))
    fitting.same("the rows of X and Label", x.shape[:-1], label.shape[: len(x.shape) - 1])


def _loss_shape(x, label):
    """The loss is [..., 1] like the label, or as short as a label without the last axis."""
    return (*x.shape[:-1], 1) if label.ndim == x.ndim else x.shape[:-1]


def _of_one_label(shapes, attr):
    """The loss and its parts where Label is one number a row; a last dim that nobody knows may not be one."""
    x, label = shapes["X"], shapes["Label"]
    return {"Y": label, "MatchX": label, "XShape": (*x, 0)} if len(x) > 1 and label == (*x[:-1], 1) else None


@op(out="Y", diff="x", lod="x", rows=WISE, infer=by_rule(_of_one_label))
def cross_entropy(x, label, *, soft_label: bool = False, ignore_index: int = -100):
    """Y[..., 1] = -log(X[..., Label]), or -sum(Label * log(X)) with soft_label; 0 where Label is ignore_index."""
    if soft_label:
        return -(label * finite_log(x)).sum(axis=-1, keepdims=True)
    shape = _loss_shape(x, label)
    label = class_labels(label, (*x.shape[:-1], 1))
    picked, _ = pick(x, label)
    return jnp.where(label == ignore_index, 0, -finite_log(picked)).reshape(shape)


@cross_entropy.fits
def _(x, label, *, soft_label):
    if soft_label:
        fitting.same("the dims of X and of a soft Label", x.shape, label.shape)
    else:
        _one_label_a_row(x, label)


@cross_entropy.check
def _(x: Meta, label, *, soft_label, ignore_index):
    return [] if soft_label else [Demand("label", label, 0, x.shape[-1], ignore_index)]


@cross_entropy.grad
def _(x, label, d_y, *, soft_label, ignore_index):
    d_y = d_y.reshape(*x.shape[:-1], 1)
    if soft_label:
        return -d_y * label / x
    label = label.reshape(*x.shape[:-1], 1)
    hit = (label == jnp.arange(x.shape[-1], dtype=label.dtype)) & (label != ignore_index)
    return jnp.where(hit, -d_y / jnp.where(hit, x, 1), 0)


@op(out="Y XShape MatchX", diff="x", lod={"Y": "x", "XShape": "x"}, rows=WISE, infer=by_rule(_of_one_label))
def cross_entropy2(x, label, *, ignore_index: int = -100):
    """Y = -log(MatchX), MatchX[..., 1] = X[..., Label]; XShape is [*X's shape, 0]."""
    shape = _loss_shape(x, label)
    label = class_labels(label, (*x.shape[:-1], 1))
    picked, _ = pick(x, label)
    ignored = label == ignore_index
    match = jnp.where(ignored, 0, picked)
    loss = jnp.where(ignored, 0, -finite_log(picked)).reshape(shape)
    return loss, no_elements((*x.shape, 0), x.dtype), match


@cross_entropy2.fits
def _(x, label):
    _one_label_a_row(x, label)


@cross_entropy2.check
def _(x: Meta, label, *, ignore_index):
    return [Demand("label", label, 0, x.shape[-1], ignore_index)]


@cross_entropy2.grad(type="cross_entropy_grad2")
def _(x_shape: Meta, label, match_x, d_y, *, ignore_index):
    shape = x_shape.shape[:-1]
    label = label.reshape(*shape[:-1], 1)
    hit = (label == jnp.arange(shape[-1], dtype=label.dtype)) & (label != ignore_index)
    return jnp.where(hit, -d_y.reshape(label.shape) / match_x.reshape(label.shape), 0)


def _infer_softmax_loss(op_view, var_of):
    """From Logits alone, as in Fluid: the label may be declared with an unknown number of rows."""
    logits = var_of(op_view.inputs["Logits"][0])
    if logits is None:
        return {}
    shape = list(logits.shape)
    shape[op_view.attrs.get("axis", -1)] = 1
    found = {n: VarInfo(tuple(logits.shape), logits.dtype, logits.lod_level) for n in op_view.outputs["Softmax"]}
    return found | {n: VarInfo(tuple(shape), logits.dtype, logits.lod_level) for n in op_view.outputs["Loss"]}


@op(out="Softmax~ Loss", diff="logits", lod="logits", rows=off_rows, infer=_infer_softmax_loss, newer="use_softmax")
def softmax_with_cross_entropy(
    logits,
    label,
    *,
    soft_label: bool = False,
    numeric_stable_mode: bool = True,
    ignore_index: int = -100,
    axis: int = -1,
    use_softmax: bool = True,
):
    """Softmax of Logits along `axis`; Loss = -log Softmax[Label], or -sum(Label * log Softmax) with soft_label.

    Without `use_softmax` (Paddle 2), Logits are already probabilities.
    """
    if not use_softmax:
        return logits, _loss_of(logits, label, soft_label, ignore_index, axis)
    z = shifted(logits, axis)
    e = exp_at_least(z, CLIP)
    total = e.sum(axis=axis, keepdims=True)
    if soft_label:
        loss = -(label * (at_least(z, CLIP) - jnp.log(total))).sum(axis=axis, keepdims=True)
        return e / total, loss
    label = class_labels(label, total.shape)
    inside = (label >= 0) & (label < logits.shape[axis])
    z_label = at_least(_taken(z, label, inside, axis), CLIP)
    return e / total, jnp.where(label == ignore_index, 0, jnp.log(total) - z_label)


@softmax_with_cross_entropy.fits
def _(logits, label, *, soft_label, axis):
    fitting.axis_of("axis", axis, len(logits.shape))
    expected = list(logits.shape)
    if not soft_label:
        expected[axis] = 1
    fitting.same("the dims of Label and those expected for Logits", label.shape, expected)


def _taken(x, label, inside, axis):
    """The element of each label along ``axis``, the first where it is not ``inside``."""
    return jnp.take_along_axis(x, jnp.where(inside, label, 0), axis, mode="promise_in_bounds")


def _loss_of(probabilities, label, soft_label, ignore_index, axis):
    logs = at_least(jnp.log(probabilities), -1e20)
    if soft_label:
        return -(label * logs).sum(axis=axis, keepdims=True)
    label = label.reshape([1 if i == axis % logs.ndim else n for i, n in enumerate(logs.shape)])
    inside = (label >= 0) & (label < logs.shape[axis])
    return jnp.where(inside & (label != ignore_index), -_taken(logs, label, inside, axis), 0)


@softmax_with_cross_entropy.check
def _(logits: Meta, label, *, soft_label, ignore_index, axis):
    return [] if soft_label else [Demand("label", label, 0, logits.shape[axis], ignore_index)]


@softmax_with_cross_entropy.grad(lod={"Logits@GRAD": "Softmax"})
def _(label, softmax, d_loss, *, soft_label, ignore_index, axis, use_softmax):
    if not use_softmax:
        loss = lambda p: _loss_of(p, label, soft_label, ignore_index, axis)  # noqa: E731
        return jax.vjp(loss, softmax)[1](d_loss.reshape(jax.eval_shape(loss, softmax).shape))[0]
    if soft_label:
        return (softmax * label.sum(axis=axis, keepdims=True) - label) * d_loss
    shape = list(softmax.shape)
    shape[axis] = 1
    label, d_loss = label.reshape(shape), d_loss.reshape(shape)
    hit = label == lax.broadcasted_iota(label.dtype, softmax.shape, axis % softmax.ndim)
    return jnp.where(label == ignore_index, 0, (softmax - hit.astype(softmax.dtype)) * d_loss)


def _class_weights(label, weight, ignore_index, dtype):
    """(weight of each label, 0 where ignored; the label, 0 where ignored)."""
    counted = label != ignore_index
    index = jnp.where(counted, label, 0)
    ones = jnp.ones(label.shape, dtype) if weight is None else jnp.asarray(weight)[index]
    return jnp.where(counted, ones, 0), index


@op(out="Out Total_weight", slots={"total_weight": "Total_weight"}, diff="x", lod=None)
def nll_loss(x, label, weight=None, *, ignore_index: Long = -100, reduction: str = "mean"):
    """Out = -Weight[Label] * X[n, Label, ...]; reduction none, sum or mean (by Total_weight)."""
    w, index = _class_weights(label, weight, ignore_index, x.dtype)
    losses = -w * jnp.take_along_axis(x, index[:, None], axis=1)[:, 0]
    if reduction == "none":
        return losses, jnp.zeros(1, x.dtype)
    total = w.sum()
    out = losses.sum() / total if reduction == "mean" else losses.sum()
    return out.reshape(1), total.reshape(1)


@nll_loss.check
def _(x: Meta, label, *, ignore_index):
    return [Demand("label", label, 0, x.shape[1], ignore_index)]


@nll_loss.grad
def _(x: Meta, label, total_weight, d_out, weight=None, *, ignore_index, reduction):
    w, index = _class_weights(label, weight, ignore_index, d_out.dtype)
    slope = -w * d_out
    slope = slope / total_weight if reduction == "mean" else slope
    return transpose_of(lambda v: jnp.take_along_axis(v, index[:, None], axis=1)[:, 0], x, slope)
