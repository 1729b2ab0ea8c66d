"""Loss layers."""

from __future__ import annotations

from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.base.unknown import unknown_name
from fluidjax.framework import Variable
from fluidjax.initializer import Constant
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._control_flow.basic import equal
from fluidjax.layers._loss.sampled import hsigmoid, nce, sampled_softmax_with_cross_entropy
from fluidjax.layers._sequence.ctc import edit_distance, warpctc
from fluidjax.layers._tensor import manipulation, matmul, reduction
from fluidjax.layers.ops import square
from fluidjax.writing.checks import FLOATS, FULL_FLOATS, INTS, check_type, check_variable_and_dtype
from fluidjax.writing.emit import emit_many

__all__ = [
    "center_loss",
    "bpr_loss",
    "cross_entropy",
    "square_error_cost",
    "edit_distance",
    "warpctc",
    "nce",
    "hsigmoid",
    "sampled_softmax_with_cross_entropy",
    "softmax_with_cross_entropy",
    "rank_loss",
    "margin_rank_loss",
    "sigmoid_cross_entropy_with_logits",
    "teacher_student_sigmoid_loss",
    "huber_loss",
    "kldiv_loss",
    "npair_loss",
    "mse_loss",
]

_IGNORE_NONE = -100


def cross_entropy(
    input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = _IGNORE_NONE
) -> Variable:
    """Cross entropy: -log(input[label]), or -sum(label * log(input)) with soft_label.

    Args:
        input: probabilities [..., classes], float32 or float64.
        label: classes int64 [..., 1], or probabilities shaped like input.
        ignore_index: label of rows with zero loss.

    Returns:
        [..., 1].

    Examples:
        >>> with fluid.dygraph.guard():
        ...     probability = fluid.dygraph.to_variable(np.float32([[0.5, 0.5], [0.1, 0.9]]))
        ...     label = fluid.dygraph.to_variable(np.int64([[0], [1]]))
        ...     print(fluid.layers.cross_entropy(probability, label).numpy().round(3))
        [[0.693]
         [0.105]]
    """
    check_variable_and_dtype(input, "input", FLOATS, "cross_entropy")
    if not soft_label:
        return cross_entropy2(input, label, ignore_index)
    helper = LayerHelper("cross_entropy", **locals())
    out = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(
        type="cross_entropy",
        inputs={"X": [input], "Label": [label]},
        outputs={"Y": [out]},
        attrs={"soft_label": soft_label, "ignore_index": ignore_index},
    )
    return out


def cross_entropy2(input: Variable, label: Variable, ignore_index: int = _IGNORE_NONE) -> Variable:
    """``cross_entropy`` with hard labels, using the op that keeps input[label] for its gradient."""
    check_variable_and_dtype(input, "input", FLOATS, "cross_entropy2")
    helper = LayerHelper("cross_entropy2", **locals())
    out = helper.create_variable_for_type_inference(dtype=input.dtype)
    x_shape = helper.create_variable_for_type_inference(dtype=input.dtype)
    match_x = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(
        type="cross_entropy2",
        inputs={"X": [input], "Label": [label]},
        outputs={"Y": [out], "MatchX": [match_x], "XShape": [x_shape]},
        attrs={"ignore_index": ignore_index},
    )
    return out


def square_error_cost(input: Variable, label: Variable) -> Variable:
    """(input - label)^2, elementwise; float32 or float64."""
    check_variable_and_dtype(input, "input", FULL_FLOATS, "square_error_cost")
    check_variable_and_dtype(label, "label", FULL_FLOATS, "square_error_cost")
    helper = LayerHelper("square_error_cost", **locals())
    difference = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(type="elementwise_sub", inputs={"X": [input], "Y": [label]}, outputs={"Out": [difference]})
    out = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(type="square", inputs={"X": [difference]}, outputs={"Out": [out]})
    return out


def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = _IGNORE_NONE,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Any:
    """log(sum(exp(logits))) - logits[label] along axis, or -sum(label * log_softmax(logits)) with soft_label.

    Args:
        logits: [..., classes, ...], float32 or float64.
        label: classes int64, with size 1 along axis, or probabilities shaped like logits.
        ignore_index: label of rows with zero loss.
        numeric_stable_mode: accepted for compatibility; the stable form is always used.

    Returns:
        The loss, with size 1 along axis; with return_softmax, also the softmax.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     logits = fluid.dygraph.to_variable(np.float32([[0, 0], [0, 10]]))
        ...     label = fluid.dygraph.to_variable(np.int64([[0], [1]]))
        ...     print(fluid.layers.softmax_with_cross_entropy(logits, label).numpy().round(3))
        [[0.693]
         [0.   ]]
    """
    softmax, loss = emit_many(
        "softmax_with_cross_entropy",
        {"Logits": logits, "Label": label},
        [("Softmax", logits.dtype, False), ("Loss", logits.dtype, False)],
        {
            "soft_label": soft_label,
            "ignore_index": ignore_index,
            "numeric_stable_mode": numeric_stable_mode,
            "axis": axis,
        },
    )
    return (loss, softmax) if return_softmax else loss


def sigmoid_cross_entropy_with_logits(
    x: Variable, label: Variable, ignore_index: int = _IGNORE_NONE, name: str | None = None, normalize: bool = False
) -> Variable:
    """max(x, 0) - x label + log(1 + exp(-|x|)), elementwise, float32 or float64.

    ignore_index: label of elements with zero loss; normalize: divide by the number of other labels.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.float32([[0, 10]]))
        ...     label = fluid.dygraph.to_variable(np.float32([[1, 1]]))
        ...     print(fluid.layers.sigmoid_cross_entropy_with_logits(x, label).numpy().round(3))
        [[0.693 0.   ]]
    """
    check_variable_and_dtype(x, "input", FLOATS, "sigmoid_cross_entropy_with_logits")
    helper = LayerHelper("sigmoid_cross_entropy_with_logits", **locals())
    out = helper.create_variable_for_type_inference(dtype=x.dtype)
    helper.append_op(
        type="sigmoid_cross_entropy_with_logits",
        inputs={"X": x, "Label": label},
        attrs={"ignore_index": ignore_index, "normalize": normalize},
        outputs={"Out": out},
    )
    return out


def center_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    alpha: Any,
    param_attr: Any,
    update_center: bool = True,
) -> Variable:
    """0.5 |input - center[label]|^2, with centers that move towards their samples at rate alpha.

    Args:
        input: features [N, D], float32 or float64; label: classes int64 or int32 [N, 1].
        num_classes: number of centers; param_attr: of the centers [num_classes, D], which receive no gradient.
        alpha: a number or a Variable [1]; update_center: whether to move the centers.

    Returns:
        [N, 1].
    """
    helper = LayerHelper("center_loss", **locals())
    check_variable_and_dtype(input, "input", FULL_FLOATS, "center_loss")
    check_variable_and_dtype(label, "label", INTS, "center_loss")
    dtype = helper.input_dtype()
    centers = helper.create_parameter(attr=param_attr, shape=[num_classes, input.shape[1]], dtype=dtype)
    assert centers is not None, "param_attr of center_loss must not be False: the centers are its state. Leave it out."
    centers.stop_gradient = True
    if isinstance(alpha, Variable):
        rate = alpha
    else:
        assert isinstance(alpha, float), f"alpha of center_loss must be a float or a Variable, received {alpha!r}."
        rate = helper.create_variable(
            name="centerloss_alpha",
            dtype="float32",
            shape=[1],
            type=VarType.LOD_TENSOR,
            persistable=True,
            stop_gradient=True,
            initializer=Constant(alpha),
        )
    difference = helper.create_variable_for_type_inference(dtype=input.dtype)
    loss = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(
        type="center_loss",
        inputs={"X": [input], "Label": [label], "Centers": [centers], "CenterUpdateRate": [rate]},
        outputs={"SampleCenterDiff": [difference], "Loss": [loss], "CentersOut": [centers]},
        attrs={"cluster_num": num_classes, "need_update": update_center},
    )
    return loss


def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """Bayesian personalised ranking: the mean over all other classes j of log(1 + exp(input[j] - input[label])).

    Args:
        input: scores [N, classes], float32 or float64; label: int64 [N, 1].

    Returns:
        [N, 1].
    """
    helper = LayerHelper("bpr_loss", **locals())
    out = helper.create_variable_for_type_inference(dtype=input.dtype)
    check_variable_and_dtype(input, "input", FLOATS, "bpr_loss")
    helper.append_op(type="bpr_loss", inputs={"X": [input], "Label": [label]}, outputs={"Y": [out]})
    return out


def _ranking_inputs(layer: str, **given: Any) -> None:
    for name, value in given.items():
        check_variable_and_dtype(value, name, ["float32"], layer)


def rank_loss(label: Variable, left: Variable, right: Variable, name: str | None = None) -> Variable:
    """RankNet: log(1 + exp(left - right)) - label (left - right), all float32 [N, 1]."""
    helper = LayerHelper("rank_loss", **locals())
    _ranking_inputs("rank_loss", label=label, left=left, right=right)
    out = helper.create_variable_for_type_inference("float32")
    helper.append_op(type="rank_loss", inputs={"Label": label, "Left": left, "Right": right}, outputs={"Out": out})
    return out


def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """max(0, margin - label (left - right)), with label 1 or -1; all float32 [N, 1]."""
    helper = LayerHelper("margin_rank_loss", **locals())
    _ranking_inputs("margin_rank_loss", label=label, left=left, right=right)
    out = helper.create_variable_for_type_inference(left.dtype)
    activated = helper.create_variable_for_type_inference(left.dtype)
    helper.append_op(
        type="margin_rank_loss",
        inputs={"Label": label, "X1": left, "X2": right},
        outputs={"Out": out, "Activated": activated},
        attrs={"margin": margin},
    )
    return out


def teacher_student_sigmoid_loss(
    input: Variable, label: Variable, soft_max_up_bound: float = 15.0, soft_max_lower_bound: float = -15.0
) -> Variable:
    """The logistic loss of a click plus that of a teacher's score, both encoded in label (see the op).

    Args:
        input: logits [N, 1], float32 or float64; label: [N, 1].
        soft_max_up_bound, soft_max_lower_bound: outside these bounds, the gradient of input is 0.

    Returns:
        [N, 1].
    """
    check_variable_and_dtype(input, "input", FULL_FLOATS, "teacher_student_sigmoid_loss")
    check_variable_and_dtype(label, "label", FULL_FLOATS, "teacher_student_sigmoid_loss")
    helper = LayerHelper("teacher_student_sigmoid_loss", **locals())
    out = helper.create_variable(dtype=input.dtype)
    helper.append_op(
        type="teacher_student_sigmoid_loss",
        inputs={"X": [input], "Label": [label]},
        outputs={"Y": [out]},
        attrs={"soft_max_lower_bound": float(soft_max_lower_bound), "soft_max_up_bound": float(soft_max_up_bound)},
    )
    return out


def huber_loss(input: Variable, label: Variable, delta: float) -> Variable:
    """0.5 r^2 where |r| <= delta, else delta (|r| - 0.5 delta), r = label - input; float32 or float64 [N, 1]."""
    helper = LayerHelper("huber_loss", **locals())
    check_variable_and_dtype(input, "input", FULL_FLOATS, "huber_loss")
    check_variable_and_dtype(label, "label", FULL_FLOATS, "huber_loss")
    residual = helper.create_variable_for_type_inference(dtype=helper.input_dtype())
    out = helper.create_variable_for_type_inference(dtype=helper.input_dtype())
    helper.append_op(
        type="huber_loss",
        inputs={"X": input, "Y": label},
        outputs={"Out": out, "Residual": residual},
        attrs={"delta": delta},
    )
    return out


def kldiv_loss(x: Variable, target: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """Kullback-Leibler divergence: target (log(target) - x) for log-probabilities x, 0 where target <= 0.

    reduction: "none" keeps the shape; "batchmean", "mean" and "sum" give [1].
    """
    helper = LayerHelper("kldiv_loss", **locals())
    check_variable_and_dtype(x, "x", FULL_FLOATS, "kldiv_loss")
    check_variable_and_dtype(target, "target", FULL_FLOATS, "kldiv_loss")
    check_type(reduction, "reduction", str, "kldiv_loss")
    loss = helper.create_variable_for_type_inference(dtype=x.dtype)
    helper.append_op(
        type="kldiv_loss", inputs={"X": x, "Target": target}, outputs={"Loss": loss}, attrs={"reduction": reduction}
    )
    return loss


def npair_loss(anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002) -> Variable:
    """N-pair loss: cross entropy of anchor positive' with targets from equal labels, plus an L2 term.

    Args:
        anchor, positive: embeddings [N, D], float32 or float64.
        labels: classes [N]; rows with the same class share the target.
        l2_reg: weight of mean(sum(anchor^2)) + mean(sum(positive^2)), times 0.25.

    Returns:
        [1].
    """
    check_variable_and_dtype(anchor, "anchor", FULL_FLOATS, "npair_loss")
    check_variable_and_dtype(positive, "positive", FULL_FLOATS, "positive")
    check_variable_and_dtype(labels, "labels", ["float32", "float64", "int64"], "labels")
    count = labels.shape[0]
    column = manipulation.reshape(labels, shape=[count, 1], inplace=True)
    labels = manipulation.expand(column, expand_times=[1, count])
    same = equal(labels, manipulation.transpose(labels, perm=[1, 0])).astype("float32")
    target = same / reduction.reduce_sum(same, dim=1, keep_dim=True)
    l2 = reduction.reduce_mean(reduction.reduce_sum(square(anchor), 1)) + reduction.reduce_mean(
        reduction.reduce_sum(square(positive), 1)
    )
    l2 = l2 * 0.25 * l2_reg
    similarity = matmul.matmul(anchor, positive, transpose_x=False, transpose_y=True)
    entropy = softmax_with_cross_entropy(logits=similarity, label=target, soft_label=True)
    weighted = reduction.reduce_sum(target * entropy, 0)
    return l2 + reduction.reduce_mean(weighted)


def mse_loss(input: Variable, label: Variable) -> Variable:
    """mean((input - label)^2), [1]; float32 or float64."""
    check_variable_and_dtype(input, "input", FULL_FLOATS, "mse_loss")
    check_variable_and_dtype(label, "label", FULL_FLOATS, "mse_loss")
    return reduction.reduce_mean(square_error_cost(input, label))


__getattr__ = unknown_name(__name__)
