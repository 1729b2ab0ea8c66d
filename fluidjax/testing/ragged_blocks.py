"""Blocks of ops that know of sequences: from the rows of sequences to as many rows of the same sequences."""

from __future__ import annotations

from typing import Any

import fluidjax as fluid
from fluidjax.testing.builder import WIDTH, Block, Builder

layers = fluid.layers

_POOLS = ("sum", "average", "sqrt", "max", "first", "last")


def pooled(build: Builder, x: Any) -> Any:
    """One row for each sequence, handed to all of its rows."""
    return layers.sequence_expand_as(layers.sequence_pool(x, build.choose(_POOLS)), x)


def expanded(build: Builder, x: Any) -> Any:
    """The sum of each sequence, expanded to as many rows as the sequence has."""
    return layers.sequence_expand(layers.sequence_pool(x, "sum"), x)


def normalized(build: Builder, x: Any) -> Any:
    """Attention over the rows of a sequence."""
    weights = layers.sequence_softmax(layers.mul(x, build.parameter([WIDTH, 1])))
    return layers.elementwise_mul(x, layers.expand(weights, [1, WIDTH]))


def convolved(build: Builder, x: Any) -> Any:
    """tanh of a convolution over three rows of a sequence."""
    return layers.sequence_conv(x, WIDTH, filter_size=3, act="tanh")


def ahead(build: Builder, x: Any) -> Any:
    """A row convolution that looks two rows ahead."""
    return layers.row_conv(x, 2)


def reversed_(build: Builder, x: Any) -> Any:
    """The rows of each sequence in reverse order."""
    return layers.sequence_reverse(x)


def concatenated(build: Builder, x: Any) -> Any:
    """Twice as many rows, pooled and handed back."""
    both = layers.sequence_concat([x, layers.tanh(build.pick())])
    return layers.sequence_expand_as(layers.sequence_pool(both, "average"), x)


def reshaped(build: Builder, x: Any) -> Any:
    """Twice as many rows of half the width, and back."""
    half = layers.sequence_reshape(x, WIDTH // 2)
    return layers.sequence_reshape(layers.tanh(half), WIDTH)


def padded(build: Builder, x: Any) -> Any:
    """Dense, with a row for each step of the longest sequence, and back."""
    dense, lengths = layers.sequence_pad(x, layers.fill_constant([1], "float32", 0.5), maxlen=16)
    return layers.sequence_unpad(layers.tanh(dense), lengths)


def placed(build: Builder, x: Any) -> Any:
    """x / 2 + 1.5 times the position encoding."""
    return layers.add_position_encoding(x, alpha=0.5, beta=1.5)


def relabelled(build: Builder, x: Any) -> Any:
    """The LoD of another value of the pool over tanh(x)."""
    return layers.lod_reset(layers.tanh(x), build.pick())


def sliced(build: Builder, x: Any) -> Any:
    """The whole of each sequence, by lengths that are computed."""
    ones = layers.fill_constant_batch_size_like(layers.sequence_pool(x, "sum"), [-1, 1], "float32", 1.0)
    lengths = layers.cast(layers.sequence_pool(layers.sequence_expand_as(ones, x), "sum"), "int64")
    part = layers.sequence_slice(x, layers.cast(layers.scale(ones, 0.0), "int64"), lengths)
    return layers.lod_reset(part, x)


def scattered(build: Builder, x: Any) -> Any:
    """One column of the rows added into a dense row for each sequence."""
    dense = layers.mul(layers.sequence_pool(x, "sum"), build.parameter([WIDTH, WIDTH]))
    column = layers.mul(x, build.parameter([WIDTH, 1]))
    return layers.sequence_expand_as(layers.sequence_scatter(dense, build.ids(WIDTH), column), x)


def embedded(build: Builder, x: Any) -> Any:
    """x times rows of a dense embedding table, looked up by random ids."""
    return layers.elementwise_mul(x, layers.embedding(build.ids(5), [5, WIDTH], is_sparse=False))


def lstm(build: Builder, x: Any) -> Any:
    """A dynamic LSTM over projected rows, in a random direction."""
    gates = layers.mul(x, build.parameter([WIDTH, 4 * WIDTH]))
    return layers.dynamic_lstm(gates, 4 * WIDTH, is_reverse=build.choose((False, True)))[0]


def lstmp(build: Builder, x: Any) -> Any:
    """A dynamic LSTM with a recurrent projection to WIDTH."""
    gates = layers.mul(x, build.parameter([WIDTH, 8]))
    return layers.dynamic_lstmp(gates, 8, WIDTH)[0]


def gru(build: Builder, x: Any) -> Any:
    """A dynamic GRU over projected rows, in either of Fluid's two formulas."""
    gates = layers.mul(x, build.parameter([WIDTH, 3 * WIDTH]))
    return layers.dynamic_gru(gates, WIDTH, origin_mode=build.choose((False, True)))


def _each_row(build: Builder, cost: Any, x: Any) -> Any:
    """A cost for each sequence, made less than one and handed to its rows."""
    small = layers.tanh(layers.scale(cost, scale=0.05))
    return layers.elementwise_mul(x, layers.sequence_expand_as(layers.expand(small, [1, WIDTH]), x))


def crf(build: Builder, x: Any) -> Any:
    """The cost of a linear-chain CRF, spread over the rows of each sequence."""
    cost = layers.linear_chain_crf(x, build.ids(WIDTH))
    return _each_row(build, cost, x)


def ctc(build: Builder, x: Any) -> Any:
    """The CTC loss with blank WIDTH, spread over the rows of each sequence."""
    logits = layers.mul(x, build.parameter([WIDTH, WIDTH + 1]))
    return _each_row(build, layers.warpctc(logits, layers.cast(build.ids(WIDTH), "int32"), blank=WIDTH), x)


def recurrent(build: Builder, x: Any) -> Any:
    """A DynamicRNN with a memory and a static input: rank table, arrays, shrunken memories."""
    context = layers.sequence_pool(x, "average")
    rnn = layers.DynamicRNN()
    with rnn.block():
        word, held = rnn.step_input(x), rnn.static_input(context)
        memory = rnn.memory(init=context, need_reorder=True)
        new = layers.fc([word, held, memory], WIDTH, act="tanh")
        rnn.update_memory(memory, new)
        rnn.output(new)
    return rnn()


BLOCKS: dict[str, Block] = {
    f.__name__: f
    for f in (
        pooled, expanded, normalized, convolved, ahead, reversed_, concatenated, reshaped, padded, placed, relabelled,
        sliced, scattered, embedded, lstm, lstmp, gru, crf, ctc, recurrent,
    )
}  # fmt: skip

# Blocks whose kernels take seconds to compile.
SLOW = ("lstm", "lstmp", "gru", "crf", "ctc", "recurrent")
