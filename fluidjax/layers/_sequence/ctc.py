"""Connectionist temporal classification, and the edit distance used to evaluate it."""

from __future__ import annotations

from typing import Any

from fluidjax.base.older import without
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._sequence.checks import variable
from fluidjax.layers._tensor.indexing import topk
from fluidjax.layers._tensor.manipulation import squeeze
from fluidjax.writing.checks import FULL_FLOATS

__all__ = ["warpctc", "ctc_greedy_decoder", "edit_distance"]


@without("fluid.layers", "use_cudnn")
def warpctc(
    input: Variable,
    label: Variable,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Variable:
    """CTC loss: -log of the probability that softmax(input), with repeats merged and blanks removed, spells ``label``.

    Args:
        input: logits [rows, classes + 1] with LoD, or padded [steps, sequences, classes + 1] with both lengths.
        label: int32 [rows, 1] with LoD, or padded [sequences, width].
        blank: index of the blank class.
        norm_by_times: divide the gradient by the number of steps.
        input_length, label_length: int64 [sequences], for padded input.

    Returns:
        [sequences, 1].
    """
    variable(input, "input", "warpctc", FULL_FLOATS)
    variable(label, "label", "warpctc", ("int32",))
    helper = LayerHelper("warpctc", input=input, label=label, blank=blank, norm_by_times=norm_by_times)
    inputs: dict[str, Any] = {"Logits": [input], "Label": [label]}
    if input_length is not None and label_length is not None:
        inputs["LogitsLength"] = [variable(input_length, "input_length", "warpctc", ("int64",))]
        inputs["LabelLength"] = [variable(label_length, "label_length", "warpctc", ("int64",))]
    loss = helper.create_variable_for_type_inference(dtype=input.dtype)
    grad = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(
        type="warpctc",
        inputs=inputs,
        outputs={"WarpCTCGrad": [grad], "Loss": [loss]},
        attrs={"blank": blank, "norm_by_times": norm_by_times},
    )
    return loss


def ctc_greedy_decoder(
    input: Variable,
    blank: int,
    input_length: Variable | None = None,
    padding_value: int = 0,
    name: str | None = None,
) -> Any:
    """The most probable class of each step, with repeats merged and blanks removed.

    Args:
        input: probabilities [rows, classes] with LoD, or padded [sequences, steps, classes] with ``input_length``.
        blank: index of the blank class.
        input_length: int64 [sequences, 1], for padded input.
        padding_value: fills the rows of a padded result beyond their end.

    Returns:
        ids [rows, 1] with LoD; for padded input, (ids [sequences, steps], lengths [sequences, 1]).
    """
    variable(input, "input", "ctc_greedy_decoder", FULL_FLOATS)
    helper = LayerHelper("ctc_greedy_decoder", name=name, input=input)
    _, indices = topk(input, k=1)
    out = helper.create_variable_for_type_inference(dtype="int64")
    if input_length is None:
        helper.append_op(
            type="ctc_align",
            inputs={"Input": [indices]},
            outputs={"Output": [out]},
            attrs={"merge_repeated": True, "blank": blank},
        )
        return out
    length = helper.create_variable_for_type_inference(dtype="int64")
    helper.append_op(
        type="ctc_align",
        inputs={"Input": [squeeze(indices, [2])], "InputLength": [input_length]},
        outputs={"Output": [out], "OutputLength": [length]},
        attrs={"merge_repeated": True, "blank": blank, "padding_value": padding_value},
    )
    return out, length


def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: list[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> tuple[Variable, Variable]:
    """Levenshtein distance (insertions, deletions and substitutions) between each pair of sequences.

    Args:
        input, label: int64 ids [rows, 1] with LoD, or padded [sequences, width] with both lengths.
        normalized: divide by the length of the label.
        ignored_tokens: ids removed from both before comparing.

    Returns:
        (float32 [sequences, 1], the number of sequences, int64 [1]).
    """
    variable(input, "input", "edit_distance", ("int64",))
    variable(label, "label", "edit_distance", ("int64",))
    helper = LayerHelper("edit_distance", input=input, label=label)
    if ignored_tokens:
        input, label = (_erased(helper, v, ignored_tokens) for v in (input, label))
    inputs: dict[str, Any] = {"Hyps": [input], "Refs": [label]}
    if input_length is not None and label_length is not None:
        inputs["HypsLength"] = [input_length]
        inputs["RefsLength"] = [label_length]
    out = helper.create_variable_for_type_inference(dtype="int64")
    count = helper.create_variable_for_type_inference(dtype="int64")
    helper.append_op(
        type="edit_distance",
        inputs=inputs,
        outputs={"Out": [out], "SequenceNum": [count]},
        attrs={"normalized": normalized},
    )
    return out, count


def _erased(helper: LayerHelper, ids: Variable, tokens: list[int]) -> Variable:
    out = helper.create_variable_for_type_inference(dtype="int64")
    helper.append_op(type="sequence_erase", inputs={"X": [ids]}, outputs={"Out": [out]}, attrs={"tokens": tokens})
    return out
