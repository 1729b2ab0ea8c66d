"""data_norm: normalisation by running sums that the optimizer updates through their 'gradients'."""

import jax.numpy as jnp

from lowering.ops import fitting
from lowering.program import GRAD, OpSpec
from lowering.registry import Slot, op

MIN_SHOW = 1e-7


def _shown(x, slot_dim):
    """Whether the slot of each element counts: its first element (the show count) is not 0; True without slots."""
    if slot_dim <= 0:
        return jnp.ones(x.shape, bool)
    shows = jnp.abs(x[:, ::slot_dim]) >= MIN_SHOW
    return jnp.repeat(shows, slot_dim, axis=1)[:, : x.shape[1]]


@op(
    out="Y Means~ Scales~",
    slots={"scale_w": "scale_w", "bias": "bias"},
    diff="x batch_size batch_sum batch_square_sum scale_w bias",
    lod={"Y": "x"},
    vendor="use_mkldnn",
)
def data_norm(
    x,
    batch_size,
    batch_sum,
    batch_square_sum,
    scale_w=None,
    bias=None,
    *,
    epsilon: float = 1e-4,
    slot_dim: int = -1,
    summary_decay_rate: float = 0.9999999,
    enable_scale_and_shift: bool = False,
    data_layout: str = "NCHW",
    sync_stats: bool = False,
):
    """Y = (X - Means) * Scales [* scale_w + bias], Means = BatchSum / BatchSize, Scales = sqrt(BatchSize /
    BatchSquareSum). With slot_dim, slots of a row whose first element is 0 become zeros.
    """
    means, scales = batch_sum / batch_size, jnp.sqrt(batch_size / batch_square_sum)
    y = (x - means) * scales
    if enable_scale_and_shift:
        y = y * scale_w + bias
    return jnp.where(_shown(x, slot_dim), y, 0), means, scales


@data_norm.fits
def _(x, batch_size, batch_sum, batch_square_sum):
    fitting.rank("X", x, 2)
    for name, var in (("BatchSize", batch_size), ("BatchSum", batch_sum), ("BatchSquareSum", batch_square_sum)):
        fitting.same(f"{name} and the columns of X", var.shape, x.shape[1:])


@data_norm.grad
def _(x, means, scales, d_y, scale_w=None, bias=None, *, epsilon, slot_dim, enable_scale_and_shift):
    """BatchSize@GRAD etc. are the contributions of the batch to the sums: N, sum of X, sum of (X - Means)^2 + N epsilon
    (1 and the means over the N shown rows with slot_dim). They are no derivatives of Y. X@GRAD ignores the slots unless
    scale_w is used, as in Fluid.
    """
    shown = _shown(x, slot_dim)
    d_size = shown.sum(axis=0, dtype=x.dtype)
    d_sum = jnp.where(shown, x, 0).sum(axis=0)
    d_square = jnp.where(shown, jnp.square(x - means), 0).sum(axis=0)
    added = d_size * epsilon
    if slot_dim > 0:
        count = jnp.maximum(d_size, 1)
        d_size, d_sum, d_square = jnp.minimum(d_size, 1), d_sum / count, d_square / count
    sums = (d_size, d_sum, d_square + added)
    if not enable_scale_and_shift:
        return d_y * scales, *sums, None, None, None, None, None
    d_y = jnp.where(shown, d_y, 0)
    d_scale = (d_y * (x - means) * scales).sum(axis=0)
    return d_y * scales * scale_w, *sums, d_scale, d_y.sum(axis=0), None, None, None


# The grad op also lists the three sums as outputs; on one device Fluid's kernel leaves them alone.
_SUMS = ("BatchSize", "BatchSum", "BatchSquareSum")
data_norm.gradient.outputs += [Slot(name, name, dispensable=True) for name in _SUMS]
data_norm.gradient.continues = _SUMS


@data_norm.grad_maker
def _(g):
    inputs = {slot: g.input(slot) for slot in ("X", "scale_w", "bias")}
    inputs |= {"Means": g.output("Means"), "Scales": g.output("Scales"), "Y@GRAD": g.output_grad("Y")}
    outputs = {slot + GRAD: g.input_grad(slot) for slot in ("X", *_SUMS, "scale_w", "bias")}
    outputs |= {slot: g.input(slot) for slot in _SUMS}
    return [OpSpec("data_norm_grad", inputs, outputs, g.attrs)] if g.grad_to_var else []
