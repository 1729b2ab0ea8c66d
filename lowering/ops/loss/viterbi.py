"""viterbi_decode: the highest-scoring path, given scores of tags and transitions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.ops.shared import concrete_scalar
from lowering.registry import op
from lowering.values import data_of


@op(out="Scores Path", slots={"input": "Input"}, diff="", lod=None)
def viterbi_decode(input, transition, length, *, include_bos_eos_tag: bool = True):
    """Scores [B], Path [B, max(Length)] (int64, 0 after a sequence's end): the tags with the largest total score.

    Where Lengths cannot be read, as in exported functions, Path is [B, T].

    Input [B, T, C] scores each tag, Transition [C, C] each transition from row to column. With
    ``include_bos_eos_tag``, its last row starts a sequence and the row before that ends one.
    """
    steps = int(concrete_scalar(jnp.max(length), "viterbi_decode: the longest sequence"))
    return _decoded(input, transition, length, steps, include_bos_eos_tag)


@viterbi_decode.with_room
def _(input: Any, transition: Any, length: Any, *, include_bos_eos_tag):
    input = data_of(input)
    return _decoded(input, data_of(transition), data_of(length), input.shape[1], include_bos_eos_tag)


def _decoded(input: Any, transition: Any, length: Any, steps: int, include_bos_eos_tag: bool) -> tuple[Any, Any]:
    """The results for sequences of up to ``steps``."""
    length, scores = length.reshape(-1, 1), jnp.moveaxis(input, 1, 0)
    start, stop = (transition[-1], transition[-2]) if include_bos_eos_tag else (jnp.zeros_like(transition[0]),) * 2
    first = scores[0] + start + stop * (length == 1)

    def forward(best, step):
        number, score = step
        reached = best[:, :, None] + transition[None]
        going = jnp.max(reached, axis=1) + score + stop * (length == number + 1)
        return jnp.where(length > number, going, best), jnp.argmax(reached, axis=1)

    numbers = jnp.arange(1, steps)
    best, came_from = jax.lax.scan(forward, first, (numbers, scores[1:steps]))

    def backward(tag, step):
        number, origins = step
        before = jnp.take_along_axis(origins, tag[:, None], axis=1)[:, 0]
        return jnp.where(length[:, 0] > number, before, tag), tag

    tag, tags = jax.lax.scan(backward, jnp.argmax(best, axis=1), (numbers, came_from), reverse=True)
    path = jnp.concatenate([tag[:, None], tags.T], axis=1)
    return jnp.max(best, axis=1), jnp.where(jnp.arange(steps) < length, path, 0).astype(np.int64)
