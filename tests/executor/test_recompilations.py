"""What is compiled again and again says so once, and why."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.rooms.recompilations import RecompilationWarning

layers = fluid.layers


def ragged(lengths: list[int]) -> fluid.LoDTensor:
    return fluid.create_lod_tensor(np.ones((sum(lengths), 2), np.float32), [lengths], fluid.CPUPlace())


def run(build: Any, feeds: list[Any]) -> list[str]:
    """The warnings of running the program of ``build`` on each of these values of x."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.scope_guard(fluid.Scope()):
        wanted = build()
        exe = fluid.Executor(fluid.CPUPlace())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for value in feeds:
                exe.run(main, feed={"x": value}, fetch_list=[wanted])
    assert all(w.category is RecompilationWarning and w.filename == __file__ for w in caught)
    return [str(w.message) for w in caught]


def dense_sum() -> Any:
    return layers.reduce_sum(fluid.data("x", [None, 2], "float32"))


def test_eight_sizes_are_nothing_unusual() -> None:
    assert not run(dense_sum, [np.ones((n, 2), np.float32) for n in range(1, 9)] * 2)


def test_many_dense_sizes_name_the_feed() -> None:
    (message,) = run(dense_sum, [np.ones((n, 2), np.float32) for n in range(1, 14)])
    assert "compiled 9 times" in message and "'x' came as [1, 2], [2, 2], [3, 2], [4, 2] ..." in message


def reversed_rows() -> Any:
    x = fluid.data("x", [None, 2], "float32", lod_level=1)
    return layers.reduce_sum(layers.reverse(x, axis=0))


def test_an_op_without_padding_is_named_with_its_line() -> None:
    (message,) = run(reversed_rows, [ragged([n, 1]) for n in range(1, 12)])
    assert "op reverse (#0 of block 0), built at: File" in message and "in reversed_rows" in message
    assert "every LoD is compiled" in message


def test_a_bounded_stream_says_nothing() -> None:
    def build() -> Any:
        return layers.reduce_sum(fluid.data("x", [None, 2], "float32", lod_level=1))

    assert not run(build, [ragged([n, 1]) for n in range(1, 40)])


def counted_steps() -> Any:
    x = fluid.data("x", [None, 2], "float32")
    return layers.reduce_sum(layers.linspace(0.0, 1.0, layers.cast(layers.reduce_sum(x), "int32"), "float32"))


def test_a_host_op_whose_results_vary_is_named() -> None:
    rows = [np.eye(12, 2, dtype=np.float32) * 0 + (np.arange(12) < n)[:, None].astype(np.float32) for n in range(1, 12)]
    (message,) = run(counted_steps, rows)
    assert "op linspace" in message and "in counted_steps" in message


def test_it_may_be_made_an_error() -> None:
    with pytest.raises(RecompilationWarning), warnings.catch_warnings():
        warnings.simplefilter("error", RecompilationWarning)
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()):
            wanted = dense_sum()
        exe = fluid.Executor(fluid.CPUPlace())
        for n in range(1, 12):
            exe.run(main, feed={"x": np.ones((n, 2), np.float32)}, fetch_list=[wanted])


def test_a_batch_that_no_op_could_take_leaves_padding_as_it_was() -> None:
    """Whether padding is to blame is tried on this batch alone: who feeds nonsense does not slow later batches down."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x, rows = fluid.data("x", [None, 2]), fluid.data("rows", [None, 2], lod_level=1)
        wanted = layers.concat([layers.sequence_pool(rows, "sum"), x], 1)
        exe = fluid.Executor(fluid.CPUPlace())

        def step(samples: int, lengths: list[int]) -> int:
            feed = {"rows": ragged(lengths), "x": np.ones((samples, 2), "float32")}
            exe.run(main, feed=feed, fetch_list=[wanted])
            return sum(prepared.compilations for prepared in main.__dict__["_prepared_cache"].values())

        before = step(2, [1, 2])
        for _ in range(2):
            with pytest.raises(fluid.core.EnforceNotMet, match="concat"):
                step(1, [1, 2])
        assert max(step(2, [1, length]) for length in range(1, 12)) <= before + 2


def test_ops_between_those_that_need_numbers_are_compiled_once() -> None:
    """Each ``range`` asks for its limits only when it is reached; what was compiled before it stays."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.scope_guard(fluid.Scope()):
        total = layers.reduce_sum(fluid.data("x", [2], "float32"))
        for _ in range(3):
            steps = layers.range(layers.zeros([1], "float32"), total, layers.ones([1], "float32"), "float32")
            total = layers.reshape(layers.reduce_sum(steps), [1])
        (found,) = fluid.Executor(fluid.CPUPlace()).run(main, feed={"x": np.array([2, 1], "f")}, fetch_list=[total])
    assert found == [3.0]
    assert sum(p.compilations for p in main.__dict__["_prepared_cache"].values()) == 4
