"""Elements of arrays that a loop's step only multiplies are read without a branch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.framework import program_view
from lowering.loops import arrays, multiplied, while_loop

layers = fluid.layers
STEPS, ROWS, SIZE = 4, 3, 5


def _twice(previous: Any, row: Any) -> Any:
    return layers.fc([row, previous], SIZE, act="tanh", bias_attr=False)


def _also_added(previous: Any, row: Any) -> Any:
    return layers.elementwise_add(_twice(previous, row), previous)


def _one_column(previous: Any, row: Any) -> Any:
    return layers.elementwise_add(row, layers.fc(previous, 1, bias_attr=False))


def _in_a_branch(previous: Any, row: Any) -> Any:
    hidden = _twice(previous, row)
    kept = layers.cond(layers.less_than(layers.mean(row), layers.mean(hidden)), lambda: previous, lambda: hidden)
    return layers.elementwise_add(hidden, kept)


def network(step: Any, rows: int = ROWS) -> Any:
    """The mean of the last memory of a loop that reads a memory and a row, and writes ``step`` of them."""
    x = fluid.data("x", [STEPS, rows, SIZE])
    i, limit = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", STEPS)
    i.stop_gradient = limit.stop_gradient = True
    memory, inputs = layers.array_write(layers.fill_constant([rows, SIZE], "float32", 0), i), None
    for at, row in enumerate(layers.split(x, STEPS, dim=0)):
        place = layers.fill_constant([1], "int64", at)
        inputs = layers.array_write(layers.reshape(row, [rows, SIZE]), place, inputs)
    running = layers.less_than(i, limit)
    with layers.While(running).block():
        previous, row = layers.array_read(memory, i), layers.array_read(inputs, i)
        made = step(previous, row)
        layers.increment(i, 1, in_place=True)
        layers.array_write(made, i, memory)
        layers.less_than(i, limit, cond=running)
    loss = layers.mean(layers.array_read(memory, limit))
    fluid.optimizer.SGD(0.5).minimize(loss)
    return loss


def _elements(step: Any) -> tuple[list[str], frozenset[str]]:
    """(the elements that a step reads, those that it only multiplies)."""
    network(step)
    program = program_view(fluid.default_main_program())
    body = program.blocks[1]
    read = [op.outputs["Out"][0] for op in body.ops if op.type == "read_from_array"]
    return read, multiplied.multiplied(program, body, read)


@pytest.mark.parametrize("step", [_twice, _also_added, _one_column, _in_a_branch])
def test_which_elements_are_only_multiplied(step: Any) -> None:
    (previous, row), found = _elements(step)
    assert (previous in found) == (step is _twice)
    assert (row in found) == (step in (_twice, _also_added))


@pytest.mark.parametrize("rows", [ROWS, 1])
def test_losses_are_those_of_reads_in_a_branch(rows: int, rng: Any, monkeypatch: Any) -> None:
    feed = {"x": rng.standard_normal((STEPS, rows, SIZE)).astype("float32")}
    read, inside = arrays.element_at, []

    def counted(*given: Any) -> Any:
        inside.append(1)
        return read(*given)

    monkeypatch.setattr(arrays, "element_at", counted)

    def losses() -> tuple[np.ndarray, int]:
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 7
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            loss = network(_twice, rows)
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(startup)
            inside.clear()
            found = [exe.run(main, feed=feed, fetch_list=[loss])[0] for _ in range(3)]
            return np.concatenate(found), len(inside)

    plain, taken = losses()
    monkeypatch.setattr(while_loop, "multiplied", lambda *given: frozenset())
    branched, more = losses()
    # XLA chooses a product's kernel by the processor: without AVX-512 one loss has another last bit.
    np.testing.assert_array_max_ulp(plain, branched, maxulp=2)
    assert plain[0] != plain[2]
    assert (taken < more) == (rows > 1)  # a product with one row is a sum to XLA, which fuses reads into it
