"""Linear-chain conditional random fields, and the chunk metric used to evaluate taggers."""

from __future__ import annotations

from typing import Any

from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._sequence.checks import VarType, variable
from fluidjax.writing.checks import FULL_FLOATS

__all__ = ["linear_chain_crf", "crf_decoding", "chunk_eval"]


def linear_chain_crf(
    input: Variable, label: Variable, param_attr: Any = None, length: Variable | None = None
) -> Variable:
    """The negative log-likelihood of the tags ``label``, log Z - score (0 for an empty sequence).

    Args:
        input: emissions [rows, tags] with LoD, or padded [sequences, width, tags] with ``length``.
        label: int64 [rows, 1] with LoD, or [sequences, width, 1].
        param_attr: attributes of the transition parameter [tags + 2, tags]: start weights, end weights, and the
            weights from tag to tag.
        length: int64 [sequences, 1] for padded input.

    Returns:
        [sequences, 1].
    """
    variable(input, "input", "linear_chain_crf", FULL_FLOATS)
    variable(label, "label", "linear_chain_crf", ("int64",))
    helper = LayerHelper("linear_chain_crf", input=input, label=label, param_attr=param_attr, length=length)
    dtype = helper.input_dtype()
    size = input.shape[2] if length is not None else input.shape[1]
    transition = helper.create_parameter(attr=helper.param_attr, shape=[size + 2, size], dtype=dtype)
    alpha, emission_exps, transition_exps, cost = (
        helper.create_variable_for_type_inference(dtype=dtype) for _ in range(4)
    )
    inputs: dict[str, Any] = {"Emission": [input], "Transition": transition, "Label": [label]}
    if length is not None:
        inputs["Length"] = [length]
    helper.append_op(
        type="linear_chain_crf",
        inputs=inputs,
        outputs={
            "Alpha": [alpha],
            "EmissionExps": [emission_exps],
            "TransitionExps": transition_exps,
            "LogLikelihood": cost,
        },
    )
    return cost


def crf_decoding(
    input: Variable, param_attr: Any, label: Variable | None = None, length: Variable | None = None
) -> Variable:
    """The best tags of each sequence (Viterbi); with ``label``, 1 where they agree with it and 0 elsewhere.

    Args:
        input: emissions [rows, tags] with LoD, or padded [sequences, width, tags] with ``length``.
        param_attr: names the transition parameter created by ``linear_chain_crf``.
        label: int64, laid out like the result.
        length: int64 [sequences, 1] for padded input.

    Returns:
        int64 [rows, 1] with the input's LoD, or [sequences, width].
    """
    variable(input, "input", "crf_decoding", FULL_FLOATS)
    helper = LayerHelper("crf_decoding", input=input, param_attr=param_attr, label=label, length=length)
    transition = helper.get_parameter(helper.param_attr.name)
    path = helper.create_variable_for_type_inference(dtype=VarType.INT64)
    inputs: dict[str, Any] = {"Emission": [input], "Transition": transition, "Label": label}
    if length is not None:
        inputs["Length"] = length
    helper.append_op(type="crf_decoding", inputs=inputs, outputs={"ViterbiPath": [path]})
    return path


def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: list[int] | None = None,
    seq_length: Variable | None = None,
) -> tuple[Variable, ...]:
    """Precision, recall and F1 score of chunks, and the numbers of predicted, true and correct chunks.

    Args:
        input, label: int64 ids [rows, 1] with LoD, or padded [sequences, width, 1] with ``seq_length``; an id is
            chunk type * number of tags in the scheme + tag.
        chunk_scheme: IOB, IOE, IOBES or plain.
        num_chunk_types: number of types; ids from num_chunk_types * tags upward lie outside all chunks.
        excluded_chunk_types: types to ignore.

    Returns:
        (precision, recall, f1) float32 [1] and (inferred, labelled, correct) int64 [1].
    """
    variable(input, "input", "chunk_eval", ("int64",))
    variable(label, "label", "chunk_eval", ("int64",))
    helper = LayerHelper("chunk_eval", input=input, label=label)
    slots = {"Precision": "float32", "Recall": "float32", "F1-Score": "float32"}
    slots |= dict.fromkeys(("NumInferChunks", "NumLabelChunks", "NumCorrectChunks"), "int64")
    outs = {slot: helper.create_variable_for_type_inference(dtype=dtype) for slot, dtype in slots.items()}
    inputs: dict[str, Any] = {"Inference": [input], "Label": [label]}
    if seq_length is not None:
        inputs["SeqLength"] = [seq_length]
    helper.append_op(
        type="chunk_eval",
        inputs=inputs,
        outputs={slot: [out] for slot, out in outs.items()},
        attrs={
            "num_chunk_types": num_chunk_types,
            "chunk_scheme": chunk_scheme,
            "excluded_chunk_types": excluded_chunk_types or [],
        },
    )
    return tuple(outs.values())
