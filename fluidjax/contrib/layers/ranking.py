"""Contrib layers for click-through and ranking models."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.writing.checks import FULL_NUMBERS, NUMBERS, check_type, check_variable_and_dtype
from fluidjax.writing.emit import emit

__all__ = ["partial_concat", "partial_sum", "rank_attention", "shuffle_batch"]


def partial_concat(input: list[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """Concatenate x[:, start_index : start_index + length] for all x in ``input``.

    Args:
        input: matrices [N, width] of the same dtype; a single Variable is treated as a list of one, with a warning.
        start_index: first column; a negative value counts from the end.
        length: number of columns; -1 for all remaining ones.

    Returns:
        [N, len(input) * length].
    """
    if not isinstance(input, list):
        warnings.warn(f"partial_concat takes a list of Variables, received {type(input)}.", stacklevel=2)
        input = [input]
    check_type(start_index, "start_index", int, "partial_concat")
    check_type(length, "length", int, "partial_concat")
    return _partial("partial_concat", input, start_index, length, NUMBERS)


def partial_sum(input: list[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """The sum over ``input`` of x[:, start_index : start_index + length].

    Args:
        input: matrices [N, width] of the same dtype.
        start_index: first column; a negative value counts from the end.
        length: number of columns; -1 for all remaining ones.

    Returns:
        [N, length].
    """
    return _partial("partial_sum", input, start_index, length, FULL_NUMBERS)


def _partial(op_type: str, inputs: list[Variable], start_index: int, length: int, dtypes: Sequence[str]) -> Variable:
    for index, x in enumerate(inputs):
        check_variable_and_dtype(x, f"input[{index}]", dtypes, op_type)
    dtype = LayerHelper(op_type, input=inputs, name="").input_dtype()
    return emit(op_type, {"X": inputs}, dtype, {"start_index": start_index, "length": length})


def rank_attention(
    input: Variable, rank_offset: Variable, rank_param_shape: list[int], rank_param_attr: Any, max_rank: int = 3
) -> Variable:
    """Rank attention: multiply rows by parameter blocks selected by their own and their neighbours' ranks, and sum.

    Args:
        input: float [N, width].
        rank_offset: int32 [N, 1 + 2 * max_rank]: the row's rank, then (rank, row) pairs.
        rank_param_shape: [width * max_rank * max_rank, size].
        rank_param_attr: attributes of the parameter.
        max_rank: number of ranks.

    Returns:
        [N, size].

    Raises:
        ValueError: the first entry of ``rank_param_shape`` does not match.
    """
    expected = input.shape[1] * max_rank * max_rank
    if rank_param_shape[0] != expected:
        raise ValueError(
            f"rank_attention: rank_param_shape[0] must be width * max_rank * max_rank = {expected}, received"
            f" {rank_param_shape[0]}. Change rank_param_shape or max_rank."
        )
    helper = LayerHelper("rank_attention", input=input)
    dtype = helper.input_dtype()
    param = helper.create_parameter(attr=rank_param_attr, shape=rank_param_shape, dtype=dtype)
    out = helper.create_variable_for_type_inference(dtype)
    # Fluid makes a variable here that no op writes; programs that are compared by name have it.
    helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    helper.append_op(
        type="rank_attention",
        inputs={"X": input, "RankOffset": rank_offset, "RankParam": param},
        outputs={"Out": out},
        attrs={"MaxRank": max_rank},
    )
    return out


def shuffle_batch(x: Variable, seed: int | Variable | None = None) -> Variable:
    """Randomly permute the rows of ``x`` (all dimensions but the last, flattened), differently in each run.

    Args:
        x: [..., width].
        seed: an int to start from, or an int64 [1] variable that holds the state. None uses the program's
            ``random_seed``, or a random seed if that is 0.

    Returns:
        A Variable shaped like ``x``.
    """
    helper = LayerHelper("shuffle_batch")
    out = helper.create_variable_for_type_inference(dtype=x.dtype)
    order = helper.create_variable_for_type_inference(dtype="int64")
    if seed is None:
        seed = helper.main_program.random_seed or int(np.random.randint(-65536, 65535))
    attrs = {}
    if isinstance(seed, int):
        attrs["startup_seed"] = seed
        seed = helper.create_variable(name=unique_name.generate("shuffle_batch_seed"), dtype="int64", persistable=True)
    helper.append_op(
        type="shuffle_batch",
        inputs={"X": x, "Seed": seed},
        outputs={"Out": out, "ShuffleIdx": order, "SeedOut": seed},
        attrs=attrs,
    )
    return out
