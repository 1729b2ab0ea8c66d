"""Blocks with sub-blocks: branches, loops, recurrences, and the arrays between them."""

from __future__ import annotations

from typing import Any

import fluidjax as fluid
from fluidjax.testing.builder import WIDTH, Block, Builder

layers = fluid.layers


def cond(build: Builder, x: Any) -> Any:
    """Two branches, one of which is taken by the value of a sum."""
    weight = build.parameter([WIDTH, WIDTH])
    positive = layers.less_than(layers.fill_constant([1], "float32", 0.0), layers.reduce_sum(x))
    return layers.cond(positive, lambda: layers.tanh(layers.mul(x, weight)), lambda: layers.scale(x, scale=2.0))


def loop(build: Builder, x: Any) -> Any:
    """A while loop over a tensor array: h_{i+1} = tanh(h_i W), i below 0 to 3."""
    weight = build.parameter([WIDTH, WIDTH])
    i = layers.fill_constant([1], "int64", 0)
    i.stop_gradient = True
    trips = layers.fill_constant([1], "int64", build.choose((0, 1, 2, 3)))
    states = layers.array_write(x, i)
    more = layers.less_than(i, trips)
    while_ = layers.While(cond=more)
    with while_.block():
        state = layers.array_read(states, i)
        new = layers.tanh(layers.mul(state, weight))
        layers.increment(i, in_place=True)
        layers.array_write(new, i, array=states)
        layers.less_than(i, trips, cond=more)
    return layers.array_read(states, i)


BLOCKS: dict[str, Block] = {"cond": cond, "loop": loop}


def static_recurrence(build: Builder, x: Any) -> Any:
    """A StaticRNN over the columns: each step sees one column of all rows."""
    columns = layers.reshape(layers.transpose(x, [1, 0]), [WIDTH, -1, 1])
    start = layers.slice(x, [1], [0], [1])
    rnn = layers.StaticRNN()
    with rnn.step():
        column, memory = rnn.step_input(columns), rnn.memory(init=start)
        new = layers.tanh(layers.elementwise_add(layers.fc(column, 1), layers.fc(memory, 1)))
        rnn.update_memory(memory, new)
        rnn.step_output(new)
    rows: Any = rnn()
    return layers.transpose(layers.reshape(rows, [WIDTH, -1]), [1, 0])


def rows_by_sign(build: Builder, x: Any) -> Any:
    """An IfElse: rows go different ways by the sign of their first element."""
    first = layers.slice(x, [1], [0], [1])
    negative = layers.less_than(first, layers.fill_constant_batch_size_like(first, [-1, 1], "float32", 0.0))
    ways = layers.IfElse(negative)
    with ways.true_block():
        ways.output(layers.fc(ways.input(x), WIDTH, act="tanh"))
    with ways.false_block():
        ways.output(layers.square(ways.input(x)))
    return ways()[0]


def array(build: Builder, x: Any) -> Any:
    """Elements of an array joined, one of them written from another value of the pool."""
    zero, one = (layers.fill_constant([1], "int64", i) for i in (0, 1))
    items = layers.array_write(layers.tanh(x), one, layers.array_write(build.pick(), zero))
    joined, _ = layers.tensor_array_to_tensor(items, axis=1)
    return layers.mul(joined, build.parameter([2 * WIDTH, WIDTH]))


def case(build: Builder, x: Any) -> Any:
    """One of three functions, chosen by a number."""
    index = layers.fill_constant([1], "int64", build.choose((0, 1, 2)))
    return layers.switch_case(
        index, {0: lambda: layers.tanh(x), 1: lambda: layers.scale(x, scale=0.5)}, lambda: layers.square(x)
    )


# Not over sequences: their rows have no fixed number, or go other ways.
DENSE_BLOCKS: dict[str, Block] = {f.__name__: f for f in (static_recurrence, rows_by_sign, array, case)}
