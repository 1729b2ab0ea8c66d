"""Metrics as ops: accuracy, auc and mean_iou."""

from __future__ import annotations

from typing import Any

from fluidjax.framework import Variable, in_dygraph_mode
from fluidjax.initializer import Constant
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._tensor.indexing import topk
from fluidjax.writing.checks import FLOATS, FULL_FLOATS, INTS, check_variable_and_dtype

__all__ = ["accuracy", "auc"]


def accuracy(
    input: Variable, label: Variable, k: int = 1, correct: Variable | None = None, total: Variable | None = None
) -> Variable:
    """The fraction of rows whose label is among the k largest predictions.

    Args:
        input: predictions [N, classes], float32 or float64.
        label: int64 or int32 [N, 1].
        correct, total: int32 [1] variables to receive the counts.

    Returns:
        [1], with the dtype of input (float32).

    Examples:
        >>> with fluid.dygraph.guard():
        ...     scores = fluid.dygraph.to_variable(np.float32([[0.2, 0.8], [0.9, 0.1]]))
        ...     label = fluid.dygraph.to_variable(np.int64([[1], [1]]))
        ...     print(fluid.layers.accuracy(scores, label).numpy())
        [0.5]
    """
    helper = LayerHelper("accuracy", **locals())
    check_variable_and_dtype(input, "input", FLOATS, "accuracy")
    if in_dygraph_mode():  # the counts are named first there
        correct, total = _count(helper, correct), _count(helper, total)
    values, indices = topk(input, k=k)
    out = helper.create_variable_for_type_inference(dtype="float32")
    correct, total = _count(helper, correct), _count(helper, total)
    helper.append_op(
        type="accuracy",
        inputs={"Out": [values], "Indices": [indices], "Label": [label]},
        outputs={"Accuracy": [out], "Correct": [correct], "Total": [total]},
    )
    return out


def _count(helper: LayerHelper, given: Variable | None) -> Variable:
    return helper.create_variable_for_type_inference(dtype="int32") if given is None else given


def _auc_op(helper: LayerHelper, inputs: dict[str, Any], stats: list, out: Variable, attrs: dict[str, Any]) -> None:
    positive, negative = stats
    helper.append_op(
        type="auc",
        inputs={**inputs, "StatPos": [positive], "StatNeg": [negative]},
        attrs=attrs,
        outputs={"AUC": [out], "StatPosOut": [positive], "StatNegOut": [negative]},
    )


def auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 2**12 - 1,
    topk: int = 1,
    slide_steps: int = 1,
) -> Any:
    """Area under the ROC curve, over the last batches and over all.

    Args:
        input: predictions [N, 2]; the last column is the positive class.
        label: 0 or 1, int64 or int32 [N, 1].
        num_thresholds: number of bins of the histograms.
        slide_steps: number of batches covered by the sliding result.

    Returns:
        (auc of all batches, auc of the last ones, [four statistics of each]); the aucs are float64 [1].
    """
    helper = LayerHelper("auc", **locals())
    check_variable_and_dtype(input, "input", FULL_FLOATS, "auc")
    check_variable_and_dtype(label, "label", INTS, "auc")
    total, batch = (helper.create_variable_for_type_inference(dtype="float64") for _ in range(2))
    window = [(1 + slide_steps) * (num_thresholds + 1) + 1]
    shapes = [window, window, [1, num_thresholds + 1], [1, num_thresholds + 1]]
    stats = [helper.create_global_variable(persistable=True, dtype="int64", shape=shape) for shape in shapes]
    for var in stats:
        helper.set_variable_initializer(var, Constant(value=0.0, force_cpu=False))
    inputs = {"Predict": [input], "Label": [label]}
    attrs = {"curve": curve, "num_thresholds": num_thresholds}
    _auc_op(helper, inputs, stats[:2], batch, {**attrs, "slide_steps": slide_steps})
    _auc_op(helper, inputs, stats[2:], total, {**attrs, "slide_steps": 0})
    return total, batch, stats


def mean_iou(input: Variable, label: Variable, num_classes: int) -> Any:
    """Mean intersection over union of class predictions.

    Args:
        input, label: classes, int32 or int64, of the same shape.
        num_classes: number of classes.

    Returns:
        (mean over classes float32 [1], wrong and correct pixels per class int32 [num_classes]).
    """
    helper = LayerHelper("mean_iou", **locals())
    check_variable_and_dtype(input, "Predictions", INTS, "mean_iou")
    check_variable_and_dtype(label, "Labels", INTS, "mean_iou")
    mean = helper.create_variable_for_type_inference(dtype="float32")
    wrong = helper.create_variable_for_type_inference(dtype="int32")
    correct = helper.create_variable_for_type_inference(dtype="int32")
    helper.append_op(
        type="mean_iou",
        inputs={"Predictions": input, "Labels": label},
        outputs={"OutMeanIou": mean, "OutWrong": wrong, "OutCorrect": correct},
        attrs={"num_classes": num_classes},
    )
    return mean, wrong, correct
