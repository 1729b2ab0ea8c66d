"""Loops whose values grow and whose steps run one by one: ops have room, so that lengths share kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from jax import monitoring

import fluidjax as fluid
from fluidjax import layers
from lowering.engine.single import CompiledOp
from lowering.engine.single_wide import room

WIDTH, COMPILED = 4, "/jax/core/compile/backend_compile_duration"


def attending() -> tuple[fluid.Program, list[Any]]:
    """Rows with a LoD attend to what they and their parents have been, as far as masks say that an array keeps."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x, parents = fluid.data("x", [None, None, WIDTH]), fluid.data("parents", [None], "int64")
        q = fluid.data("q", [None, 1, WIDTH], lod_level=1)
        i, n = layers.fill_constant([1], "int64", 0), fluid.data("n", [1], "int64")
        past = layers.assign(x)
        masks = layers.array_write(fluid.data("mask", [None, 1, None]), i)
        out = layers.assign(q)
        cond = layers.less_than(i, n)
        loop = layers.While(cond)
        with loop.block():
            mask = layers.array_read(masks, i)
            one = layers.fill_constant_batch_size_like(mask, [-1, 1, 1], "float32", 0.5)
            mask = layers.gather(layers.concat([mask, one], axis=2), parents)
            keys = layers.concat([layers.gather(past, parents), out], axis=1)
            layers.assign(keys, past)
            weights = layers.softmax(layers.matmul(out, keys, transpose_y=True) + mask)
            layers.assign(layers.reshape(layers.matmul(weights, keys), [-1, 1, WIDTH]) + q, out)
            layers.increment(i)
            layers.array_write(mask, i, array=masks)
            layers.less_than(i, n, cond=cond)
        return main, [out, past, layers.array_read(masks, i)]


def attended(feed: dict[str, Any]) -> list[np.ndarray]:
    """What ``attending`` computes, by NumPy."""
    past, mask, out, parents = feed["x"], feed["mask"], feed["q"], feed["parents"]
    for _ in range(int(feed["n"][0])):
        mask = np.concatenate([mask, np.full((len(mask), 1, 1), 0.5, "float32")], axis=2)[parents]
        past = np.concatenate([past[parents], out], axis=1)
        scores = out @ past.transpose(0, 2, 1) + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out = weights / weights.sum(-1, keepdims=True) @ past + feed["q"]
    return [out, past, mask]


def batch(rng: np.random.Generator, sources: int, length: int, steps: int) -> dict[str, Any]:
    parents = rng.integers(0, sources, 2 * sources)
    return {
        "x": rng.normal(size=(sources, length, WIDTH)).astype("float32"),
        "mask": rng.normal(size=(sources, 1, length)).astype("float32"),
        "q": rng.normal(size=(2 * sources, 1, WIDTH)).astype("float32"),
        "parents": parents,
        "n": np.array([steps]),
    }


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """The compilations since it was cleared."""
    events: list[str] = []

    def listen(event: str, _: float, **__: Any) -> None:
        events.extend([event] * (event == COMPILED))

    monitoring.register_event_duration_secs_listener(listen)
    yield events
    monitoring.unregister_event_duration_listener(listen)


def test_new_lengths_take_the_kernels_of_others(rng: np.random.Generator, compiled: list[str]) -> None:
    main, wanted = attending()
    executor, counts = fluid.Executor(fluid.CPUPlace()), []
    for length, steps in ((9, 3), (9, 3), (10, 3), (12, 4), (11, 4), (10, 5), (13, 3)):
        feed = batch(rng, 2, length, steps)
        lod = [[0, 1, 4]]
        q = fluid.LoDTensor()
        q.set(feed["q"], fluid.CPUPlace())
        q.set_lod(lod)
        compiled.clear()
        found = executor.run(main, feed=feed | {"q": q}, fetch_list=wanted, return_numpy=False)
        counts.append(len(compiled))
        assert found[0].lod() == lod
        for value, expected in zip(found, attended(feed), strict=True):
            np.testing.assert_allclose(np.array(value), expected, rtol=1e-5, atol=1e-6)
    assert counts[1] == 0
    assert max(counts[2:]) <= 4  # what only a first step has; with true sizes each of these runs compiles 5 to 35
    assert max(counts[3:]) <= 2


@pytest.mark.parametrize(("size", "expected"), [(1, 8), (8, 8), (9, 16), (16, 16), (17, 32), (1000, 1024)])
def test_rooms_are_powers_of_two(size: int, expected: int) -> None:
    assert room(size) == expected


def test_sizes_that_come_often_get_a_kernel_of_their_own() -> None:
    op = CompiledOp(lambda values, key: values)
    assert not op.wants_room("here", (3,))
    assert [op.wants_room("here", (4,)) for _ in range(65)] == [True] * 64 + [False]
    assert op.wants_room("here", (5,)) and not op.wants_room("there", (5,)) and op.wants_room("there", (3,))
