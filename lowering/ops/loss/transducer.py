"""The loss of a recurrent transducer: alignments that emit a label or a blank at each place of a lattice."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from lowering.registry import op

# Stands for log 0: far below any log probability, and finite, so that differences stay defined.
_NEVER = -1e30


def _last_alpha(blanks, emits, frames, count):
    """The logarithm of the probability of a sequence, from those of blanks [T, U] and labels [T, U - 1]."""

    def emitted(left, step):
        below, emit = step
        value = jnp.logaddexp(below, left + emit)
        return value, value

    def along(below, emit):
        """The places of a frame, reached from the frame before or by labels emitted in it."""
        return jnp.concatenate([below[:1], lax.scan(emitted, below[0], (below[1:], emit))[1]])

    def frame(alpha, step):
        t, blank, emit = step
        return jnp.where(t < frames, along(alpha + blank, emit), alpha), None

    start = jnp.full(blanks.shape[1], _NEVER, blanks.dtype).at[0].set(0)
    steps = jnp.arange(1, blanks.shape[0]), blanks[:-1], emits[1:]
    alpha, _ = lax.scan(frame, along(start, emits[0]), steps)
    return alpha[count] + blanks[frames - 1, count]


def _losses(input, label, frames, counts, blank, strength):
    emits = jnp.take_along_axis(input[:, :, :-1], label[:, None, :, None], -1)[..., 0]
    emits = emits + strength * (emits - lax.stop_gradient(emits))
    return -jax.vmap(_last_alpha)(input[..., blank], emits, frames, counts)


@op(
    slots={p: p for p in ("input", "label", "input_lengths", "label_lengths")},
    out="loss warprnntgrad~",
    diff="input",
    lod=None,
)
def warprnnt(input, label, input_lengths, label_lengths, *, blank: int = 0, fastemit_lambda: float = 0.0):
    """loss [N] = -log of the probability of the labels [N, U], given log probabilities [N, T, U + 1, classes].

    Each is that of the next class after t frames and u labels. ``fastemit_lambda`` enlarges the gradient of labels;
    warprnntgrad is the gradient of the sum of the losses. (Paddle's kernel for GPU takes scores, and normalizes them.)
    """
    given = label, input_lengths, label_lengths, blank, fastemit_lambda
    loss, back = jax.vjp(lambda logs: _losses(logs, *given), input)
    return loss, back(jnp.ones_like(loss))[0]


@warprnnt.grad
def _(warprnntgrad, d_loss):
    return warprnntgrad * d_loss.reshape(-1, 1, 1, 1)
