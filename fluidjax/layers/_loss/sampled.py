"""Losses over a sample or a tree of the classes: nce, hsigmoid, sampled_softmax_with_cross_entropy."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable
from fluidjax.initializer import NumpyArrayInitializer
from fluidjax.layer_helper import LayerHelper
from fluidjax.param_attr import ParamAttr
from fluidjax.writing.checks import FULL_FLOATS, check_variable_and_dtype

__all__ = ["hsigmoid", "nce", "sampled_softmax_with_cross_entropy"]

SAMPLERS = {"uniform": 0, "log_uniform": 1, "custom_dist": 2}


def alias_tables(distribution: Any) -> tuple[np.ndarray, np.ndarray]:
    """Walker's alias tables for a distribution: (alias int32, probability of keeping the column float32)."""
    n = len(distribution)
    alias, keep = np.zeros(n, np.int32), np.zeros(n, np.float32)
    scaled = [p * n for p in distribution]
    large = [(i, p) for i, p in enumerate(scaled) if p > 1]
    small = [(i, p) for i, p in enumerate(scaled) if p < 1]
    for i in (i for i, p in enumerate(scaled) if p == 1):
        alias[i], keep[i] = -1, 1.0
    while large and small:
        (big, p_big), (little, p_little) = large.pop(0), small.pop(0)
        alias[little], keep[little] = big, p_little
        rest = p_big + p_little - 1.0
        (large if rest > 1 else small).append((big, rest))
    for i, _ in large + small:
        alias[i], keep[i] = -1, 1.0
    return alias, keep


def custom_inputs(helper: LayerHelper, custom_dist: Any, num_total_classes: int) -> dict[str, Any]:
    """Create the parameters that hold a custom distribution."""
    if len(custom_dist) != num_total_classes:
        raise ArgumentError(
            f"custom_dist of nce has {len(custom_dist)} probabilities for {num_total_classes} classes. Give one each."
        )
    alias, keep = alias_tables(custom_dist)
    tables = {
        "CustomDistProbs": np.array(custom_dist, np.float32),
        "CustomDistAlias": alias,
        "CustomDistAliasProbs": keep,
    }

    def constant(value: np.ndarray) -> Variable:
        found = helper.create_parameter(
            attr=ParamAttr(),
            shape=value.shape,
            dtype=value.dtype,
            default_initializer=NumpyArrayInitializer(value),
        )
        assert found is not None  # only attr=False makes none
        found.stop_gradient = True
        return found

    return {slot: constant(value) for slot, value in tables.items()}


def check_sampler(sampler: str, custom_dist: Any) -> None:
    """Raise ValueError for an unknown sampler, AssertionError for a custom one without its distribution."""
    if sampler not in SAMPLERS:
        raise ArgumentError(
            f"Unsupported sampler type {sampler!r} of nce; expected one of {sorted(SAMPLERS)}. Use one."
        )
    if sampler == "custom_dist":
        assert custom_dist is not None, "sampler 'custom_dist' of nce needs custom_dist. Pass a list of probabilities."


def nce(
    input: Variable,
    label: Variable,
    num_total_classes: int,
    sample_weight: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: Any = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Variable:
    """Noise-contrastive estimation: a logistic loss of the labels against randomly drawn classes.

    Args:
        input: features [N, D], float32 or float64; label: classes int64 [N, labels].
        num_total_classes: number of classes; num_neg_samples: number of classes drawn per row, 10 by default.
        sample_weight: [N, 1]; param_attr, bias_attr: of W [classes, D] and b [classes, 1].
        sampler: "uniform", "log_uniform", or "custom_dist" with custom_dist, the probability of each class.
        is_sparse: the gradients of W and b are SelectedRows.

    Returns:
        [N, 1].
    """
    helper = LayerHelper("nce", **locals())
    check_variable_and_dtype(input, "input", FULL_FLOATS, "nce")
    check_variable_and_dtype(label, "label", ["int64"], "nce")
    check_sampler(sampler, custom_dist)
    weight = helper.create_parameter(
        attr=helper.param_attr, shape=[num_total_classes, input.shape[1]], is_bias=False, dtype=input.dtype
    )
    inputs: dict[str, Any] = {}
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(
            attr=helper.bias_attr, shape=[num_total_classes, 1], is_bias=True, dtype=input.dtype
        )
    cost = helper.create_variable_for_type_inference(dtype=input.dtype)
    sample_logits = helper.create_variable_for_type_inference(dtype=input.dtype)
    sample_labels = helper.create_variable_for_type_inference(dtype=label.dtype)
    inputs |= {"Input": input, "Label": label, "Weight": weight}
    inputs["SampleWeight"] = sample_weight if sample_weight is not None else []
    if sampler == "custom_dist":
        inputs |= custom_inputs(helper, custom_dist, num_total_classes)
    count = 10 if num_neg_samples is None else int(num_neg_samples)
    helper.append_op(
        type="nce",
        inputs=inputs,
        outputs={"Cost": cost, "SampleLogits": sample_logits, "SampleLabels": sample_labels},
        attrs={
            "num_total_classes": int(num_total_classes),
            "num_neg_samples": count,
            "seed": seed,
            "sampler": SAMPLERS[sampler],
            "is_sparse": is_sparse,
            "remote_prefetch": is_sparse,
        },
    )
    return cost / (count + 1)


def _check_tree(num_classes: int | None, path_table: Variable | None, path_code: Variable | None, custom: bool) -> None:
    if not custom and (num_classes is None or num_classes < 2):
        raise ArgumentError(
            f"num_classes must not be less than 2 with default tree, received {num_classes}. Give more."
        )
    if custom and (path_code is None or path_table is None):
        raise ArgumentError("hsigmoid with is_custom needs path_table and path_code, and one is None. Pass both.")
    if custom and num_classes is None:
        raise ArgumentError("hsigmoid with is_custom needs num_classes, the number of inner nodes. Pass it.")


def hsigmoid(
    input: Variable,
    label: Variable,
    num_classes: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Variable:
    """Hierarchical sigmoid: the negative log probability of the label's path through a binary tree of classes.

    Args:
        input: features [N, D], float32 or float64; label: int64 [N, 1].
        num_classes: number of classes, or of inner nodes if is_custom.
        param_attr, bias_attr: of W [inner nodes, D] and b [inner nodes, 1].
        path_table, path_code: int64 [N, depth], nodes and bits from root to leaf, padded with -1, with is_custom.
        is_sparse: the gradient of W is a SelectedRows; with a custom tree only, as in Fluid.

    Returns:
        [N, 1]. Raises ValueError for fewer than 2 classes or a custom tree without its paths.
    """
    helper = LayerHelper("hierarchical_sigmoid", **locals())
    check_variable_and_dtype(input, "input", FULL_FLOATS, "hsigmoid")
    check_variable_and_dtype(label, "label", ["int64"], "hsigmoid")
    dtype = helper.input_dtype()
    _check_tree(num_classes, path_table, path_code, is_custom)
    if is_sparse and not is_custom:
        print("Sparse mode should not be used without custom tree")
        is_sparse = False
    nodes = num_classes if is_custom else num_classes - 1
    out = helper.create_variable_for_type_inference(dtype)
    pre_out = helper.create_variable_for_type_inference(dtype)
    weights = helper.create_parameter(
        attr=helper.param_attr, shape=[nodes, input.shape[1]], is_bias=False, dtype=input.dtype
    )
    inputs: dict[str, Any] = {
        "X": input,
        "W": weights,
        "PathTable": path_table if path_table is not None else [],
        "PathCode": path_code if path_code is not None else [],
        "Label": label,
    }
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(
            attr=helper.bias_attr, shape=[nodes, 1], is_bias=True, dtype=input.dtype
        )
    helper.append_op(
        type="hierarchical_sigmoid",
        inputs=inputs,
        outputs={"Out": out, "PreOut": pre_out, "W_Out": weights},
        attrs={"num_classes": num_classes, "is_sparse": is_sparse, "remote_prefetch": is_sparse},
    )
    return out


def sampled_softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    num_samples: int,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: Variable | None = None,
    customized_probabilities: Variable | None = None,
    seed: int = 0,
) -> Variable:
    """Softmax cross entropy over the labels and num_samples log-uniform samples, logits corrected by -log(probability).

    Args:
        logits: [N, classes], float32 or float64; label: int64 [N, num_true].
        remove_accidental_hits: exclude samples that are labels of the row.
        use_customized_samples: use customized_samples int64 [N, num_true + num_samples], labels first, and their
            customized_probabilities.

    Returns:
        [N, 1].
    """
    helper = LayerHelper("sample_logits", **locals())
    made: dict[str, Any] = {"Samples": customized_samples, "Probabilities": customized_probabilities}
    if not use_customized_samples:
        made["Samples"] = helper.create_variable_for_type_inference("int64")
        made["Probabilities"] = helper.create_variable_for_type_inference(logits.dtype)
    made["SampledLogits"] = helper.create_variable_for_type_inference(logits.dtype)
    made["SampledLabels"] = helper.create_variable_for_type_inference("int64")
    target = helper.create_variable_for_type_inference("float32")
    made["LogitsDim"] = helper.create_variable_for_type_inference(dtype=logits.dtype)
    made["LabelsDim"] = helper.create_variable_for_type_inference(dtype=label.dtype)
    inputs: dict[str, Any] = {"Logits": logits, "Labels": label}
    if use_customized_samples:
        inputs |= {"CustomizedSamples": customized_samples, "CustomizedProbabilities": customized_probabilities}
    helper.append_op(
        type="sample_logits",
        inputs=inputs,
        outputs=made,
        attrs={
            "use_customized_samples": use_customized_samples,
            "uniq": True,
            "remove_accidental_hits": remove_accidental_hits,
            "num_samples": num_samples,
            "seed": seed,
        },
    )
    return _soft_cross_entropy(helper, made, target, num_samples + 1) / num_true


def _soft_cross_entropy(helper: LayerHelper, made: dict[str, Any], target: Variable, depth: int) -> Variable:
    """Softmax cross entropy of the sampled logits with one-hot labels."""
    dtype = made["SampledLogits"].dtype
    loss = helper.create_variable_for_type_inference(dtype=dtype)
    softmax = helper.create_variable_for_type_inference(dtype=dtype)
    helper.append_op(
        type="one_hot", inputs={"X": made["SampledLabels"]}, attrs={"depth": depth}, outputs={"Out": target}
    )
    helper.append_op(
        type="softmax_with_cross_entropy",
        inputs={"Logits": made["SampledLogits"], "Label": target},
        outputs={"Softmax": softmax, "Loss": loss},
        attrs={"soft_label": True, "ignore_index": False, "numeric_stable_mode": False},
    )
    return loss
