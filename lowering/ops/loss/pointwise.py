"""Pointwise losses on predictions and targets: logistic losses and divergences, with explicit gradients."""

import math

import jax
import jax.numpy as jnp

from lowering.engine.checks import Demand
from lowering.engine.shapes.infer_rules import by_rule
from lowering.ops import fitting
from lowering.ops.math.extrema import at_least
from lowering.registry import WISE, Wise, op
from lowering.values import Meta


def softplus(x):
    """log(1 + exp(x)) without overflow."""
    return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


def bernoulli_loss(x, label):
    """-label * log(sigmoid(x)) - (1 - label) * log(1 - sigmoid(x))."""
    return jnp.maximum(x, 0) - x * label + jnp.log1p(jnp.exp(-jnp.abs(x)))


def _counted(label, ignore_index):
    """Whether each label counts (Fluid compares its integer part)."""
    return jnp.trunc(label) != ignore_index


def _normalizer(counted, dtype):
    return jnp.maximum(counted.sum(dtype=dtype), 1e-5)


def _unless_normalized(attrs, ndim):
    return None if attrs["normalize"] else WISE


def _weighted(x, label, weight):
    """Paddle 2's loss with a weight for each element, which it puts on the logarithm alone."""
    return jnp.maximum(x, 0) - x * label + weight * jnp.log1p(jnp.exp(-jnp.abs(x)))


def _like_both(shapes, attr):
    return {"Out": shapes["X"]} if "pos_weight" not in shapes and shapes["X"] == shapes["Label"] else None


@op(
    diff="x",
    rows=_unless_normalized,
    slots={"pos_weight": "pos_weight"},
    newer="pos_weight",
    infer=by_rule(_like_both),
)
def sigmoid_cross_entropy_with_logits(x, label, pos_weight=None, *, normalize: bool = False, ignore_index: int = -100):
    """Out = max(X, 0) - X * Label + log(1 + exp(-|X|)); 0 at ignore_index; / number of counted ones to normalize."""
    counted = _counted(label, ignore_index)
    loss = bernoulli_loss(x, label) if pos_weight is None else _weighted(x, label, pos_weight)
    out = jnp.where(counted, loss, 0)
    return out / _normalizer(counted, x.dtype) if normalize else out


@sigmoid_cross_entropy_with_logits.fits
def _(x, label):
    fitting.alike("X and Label", x, label)


@sigmoid_cross_entropy_with_logits.grad(slots={"pos_weight": "pos_weight"})
def _(x, label, d_out, pos_weight=None, *, normalize, ignore_index):
    counted = _counted(label, ignore_index)
    slope = jax.nn.sigmoid(x) * (1 if pos_weight is None else pos_weight) - label
    dx = jnp.where(counted, slope * d_out, 0)
    return dx / _normalizer(counted, x.dtype) if normalize else dx


@op(diff="x", rows=WISE)
def bce_loss(x, label):
    """Out = -Label * log(X) - (1 - Label) * log(1 - X), logarithms not below -100."""
    return -label * at_least(jnp.log(x), -100) - (1 - label) * at_least(jnp.log(1 - x), -100)


@bce_loss.fits
def _(x, label):
    fitting.alike("X and Label", x, label)


@bce_loss.grad
def _(x, label, d_out):
    return d_out * (x - label) / at_least((1 - x) * x, 1e-12)


def _one_loss_each(shapes, attr):
    predicted = shapes["Predicted"]
    fitting.same("the dims of Predicted and Labels", predicted, shapes["Labels"])
    return {"Loss": (predicted[0], 1)} if predicted[1:] == (1,) else None


@op(out="Loss", diff="predicted", lod="predicted", rows=WISE, infer=by_rule(_one_loss_each))
def log_loss(predicted, labels, *, epsilon: float):
    """Loss = -Labels * log(Predicted + epsilon) - (1 - Labels) * log(1 - Predicted + epsilon), all [N, 1]."""
    return -labels * jnp.log(predicted + epsilon) - (1 - labels) * jnp.log(1 - predicted + epsilon)


@log_loss.fits
def _(predicted, labels):
    fitting.alike("Predicted and Labels", predicted, labels)
    fitting.rank("Predicted", predicted, 2)
    fitting.dim("Predicted", predicted, 1, 1)


@log_loss.grad
def _(predicted, labels, d_loss, *, epsilon):
    return d_loss * ((1 - labels) / (1 - predicted + epsilon) - labels / (predicted + epsilon))


@op(out="Loss", diff="logits", lod="logits", rows=WISE)
def hinge_loss(logits, labels):
    """Loss = max(0, 1 - Logits * (2 * Labels - 1))."""
    return at_least(1 - logits * (2 * labels - 1), 0)


@hinge_loss.fits
def _(logits, labels):
    fitting.alike("Logits and Labels", logits, labels)


@hinge_loss.grad
def _(logits, labels, d_loss):
    sign = 2 * labels - 1
    return jnp.where(logits * sign < 1, -sign * d_loss, 0)


def _unless_reduced(attrs, ndim):
    return WISE if attrs["reduction"] == "none" else None


@op(out="Loss", diff="x", lod=None, rows=_unless_reduced)
def kldiv_loss(x, target, *, reduction: str = "mean"):
    """Loss = Target * (log(Target) - X), 0 where Target <= 0; reduction none, batchmean, mean or sum (shape [1])."""
    positive = target > 0
    loss = jnp.where(positive, target * (jnp.log(jnp.where(positive, target, 1)) - x), 0)
    if reduction == "none":
        return loss
    return (loss.sum() / _reduction_count(x, reduction)).reshape(1)


@kldiv_loss.fits
def _(x, target):
    fitting.alike("X and Target", x, target)


def _reduction_count(x, reduction):
    return {"mean": math.prod(x.shape), "batchmean": x.shape[0]}.get(reduction, 1)


@kldiv_loss.grad
def _(x: Meta, target, d_loss, *, reduction):
    slope = jnp.where(target > 0, -target, 0) * d_loss
    return slope if reduction == "none" else slope / _reduction_count(x, reduction)


@op(diff="x", rows=Wise("x"))
def label_smooth(x, prior_dist=None, *, epsilon: float = 0.0):
    """Out = (1 - epsilon) * X + epsilon * PriorDist, the prior being uniform over the last axis by default."""
    prior = 1 / x.shape[-1] if prior_dist is None else prior_dist.reshape(-1)
    return (1 - epsilon) * x + epsilon * prior


@label_smooth.grad(rows=WISE)
def _(d_out, *, epsilon):
    return (1 - epsilon) * d_out


@op(out="Y", diff="x", lod="x", rows=WISE)
def teacher_student_sigmoid_loss(x, label, *, soft_max_up_bound: float = 15.0, soft_max_lower_bound: float = -15.0):
    """The sum of the click's and the teacher's logistic losses, both encoded in Label.

    -2: no click, no teacher; -1: click, no teacher; [0, 1): no click, teacher's value Label; [1, 2]: click, teacher's
    value Label - 1.
    """
    click = ((label >= -1) & (label < 0)) | (label >= 1)
    teacher = jnp.where(label >= 1, label - 1, label)
    loss = bernoulli_loss(x, click.astype(x.dtype))
    return loss + jnp.where(label >= 0, bernoulli_loss(x, teacher), 0)


@teacher_student_sigmoid_loss.fits
def _(x, label):
    fitting.alike("X and Label", x, label)
    fitting.rank("X", x, 2)
    fitting.dim("Label", label, 1, 1)


@teacher_student_sigmoid_loss.grad
def _(x, label, d_y, *, soft_max_up_bound, soft_max_lower_bound):
    """The gradient is 0 where X is out of bounds (which the loss itself ignores), as in Fluid."""
    p = jax.nn.sigmoid(jnp.clip(x, soft_max_lower_bound, soft_max_up_bound))
    click_only = jnp.where(label < -1, 0, 1) - p
    both = label - 2 * p
    slope = jnp.where(label < 0, click_only, both)
    inside = (x < soft_max_up_bound) & (x > soft_max_lower_bound)
    return jnp.where(inside, -slope, 0) * d_y


@op(out="CentersOut SampleCenterDiff Loss", diff="x", lod={"Loss": "x"}, inplace={"CentersOut": "centers"})
def center_loss(x, label, centers, center_update_rate, *, cluster_num: int, need_update: bool):
    """Loss[n, 1] = 0.5 * |X[n] - Centers[Label[n]]|^2; with need_update, the centers move towards their samples.

    CentersOut[c] = Centers[c] + rate * sum of its differences / (1 + number of its samples).
    """
    label = label.reshape(-1)
    diff = x.reshape(x.shape[0], -1) - jnp.asarray(centers)[label]
    loss = 0.5 * jnp.square(diff).sum(axis=1, keepdims=True)
    if not need_update:
        return centers, diff.reshape(x.shape), loss
    counts = jnp.ones(cluster_num, x.dtype).at[label].add(1, mode="drop")
    moves = jnp.zeros_like(centers).at[label].add(diff, mode="drop")
    step = center_update_rate.reshape(()) / counts
    return centers + moves * step[:, None], diff.reshape(x.shape), loss


@center_loss.check
def _(label, centers: Meta):
    return [Demand("label", label, 0, centers.shape[0])]


@center_loss.grad
def _(x: Meta, sample_center_diff, d_loss):
    rows = d_loss.reshape(-1, *[1] * (len(x.shape) - 1))
    return (rows * sample_center_diff.reshape(x.shape)).astype(x.dtype)


@op(diff="x", lod="x", rows=Wise("x label"))
def sigmoid_focal_loss(x, label, fg_num, *, gamma: float = 2.0, alpha: float = 0.25):
    """Out = focal loss of class c at X[n, c] over max(FgNum, 1); Label[n] is 0 for background, c + 1 for class c.

    Rows with label -1 are ignored.
    """
    positive, negative, weight = _focal_parts(x, label, fg_num, alpha)
    p = jax.nn.sigmoid(x)
    log_p = jnp.log(at_least(p, jnp.finfo(x.dtype).tiny))
    log_not_p = jnp.minimum(-x, 0) - jnp.log1p(jnp.exp(-jnp.abs(x)))
    loss = -positive * jnp.power(1 - p, gamma) * log_p - negative * jnp.power(p, gamma) * log_not_p
    return loss * weight


def _focal_parts(x, label, fg_num, alpha):
    """(alpha on the true class, 1 - alpha off it, 1 / max(FgNum, 1))."""
    label = label.reshape(-1, 1)
    at = label == jnp.arange(1, x.shape[1] + 1, dtype=label.dtype)
    off = (label != -1) & ~at
    weight = 1 / jnp.maximum(fg_num.reshape(()), 1).astype(x.dtype)
    return at * jnp.asarray(alpha, x.dtype), off * jnp.asarray(1 - alpha, x.dtype), weight


@sigmoid_focal_loss.grad
def _(x, label, fg_num, d_out, *, gamma, alpha):
    positive, negative, weight = _focal_parts(x, label, fg_num, alpha)
    p = jax.nn.sigmoid(x)
    log_p = jnp.log(at_least(p, jnp.finfo(x.dtype).tiny))
    log_not_p = jnp.minimum(-x, 0) - jnp.log1p(jnp.exp(-jnp.abs(x)))
    at = jnp.power(1 - p, gamma) * (1 - p - gamma * p * log_p)
    off = jnp.power(p, gamma) * (gamma * (1 - p) * log_not_p - p)
    return -(positive * at + negative * off) * weight * d_out
