"""The losses that Fluid defines in ``layers.nn``: log_loss, smooth_l1, dice_loss."""

from __future__ import annotations

from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._tensor import indexing, reduction
from fluidjax.writing.checks import FULL_FLOATS, check_variable_and_dtype

__all__ = ["dice_loss", "log_loss", "smooth_l1"]


def log_loss(input: Variable, label: Variable, epsilon: float = 0.0001, name: str | None = None) -> Variable:
    """-label log(input + epsilon) - (1 - label) log(1 - input + epsilon), float32 [N, 1]."""
    helper = LayerHelper("log_loss", **locals())
    check_variable_and_dtype(input, "input", ["float32"], "log_loss")
    check_variable_and_dtype(label, "label", ["float32"], "log_loss")
    loss = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(
        type="log_loss",
        inputs={"Predicted": [input], "Labels": [label]},
        outputs={"Loss": [loss]},
        attrs={"epsilon": epsilon},
    )
    return loss


def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """Smooth L1 loss: row sums of outside_weight s(inside_weight (x - y)), where s(d) = 0.5 (sigma d)^2 if |d| < 1 /
    sigma^2, else |d| - 0.5 / sigma^2.

    Args:
        x, y, inside_weight, outside_weight: float32 [N, ...]; sigma: 1 by default.

    Returns:
        [N, 1].
    """
    check_variable_and_dtype(x, "X", FULL_FLOATS, "smooth_l1_loss")
    check_variable_and_dtype(y, "Y", FULL_FLOATS, "smooth_l1_loss")
    helper = LayerHelper("smooth_l1_loss", **locals())
    diff = helper.create_variable_for_type_inference(dtype=x.dtype)
    loss = helper.create_variable_for_type_inference(dtype=x.dtype)
    helper.append_op(
        type="smooth_l1_loss",
        inputs={"X": x, "Y": y, "InsideWeight": inside_weight, "OutsideWeight": outside_weight},
        outputs={"Diff": diff, "Out": loss},
        attrs={"sigma": sigma if sigma is not None else 1.0},
    )
    return loss


def dice_loss(input: Variable, label: Variable, epsilon: float = 0.00001, name: str | None = None) -> Variable:
    """mean(1 - 2 |input * label| / (|input| + |label| + epsilon)) of probabilities [N, ..., classes] and int labels
    [N, ..., 1]; [1].
    """
    label = indexing.one_hot(label, depth=input.shape[-1])
    axes = list(range(1, len(input.shape)))
    inside = reduction.reduce_sum(input * label, dim=axes)
    total = reduction.reduce_sum(input, dim=axes) + reduction.reduce_sum(label, dim=axes)
    return reduction.reduce_mean(1 - inside * 2 / (total + epsilon))
