"""Sizes that come from the rows of a ragged value: what is made with them is padded like those rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fluidjax as fluid

from .conftest import ragged, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")

layers = fluid.layers
WIDTH = 3
BATCHES = 20


def pair(rng: np.random.Generator, lengths: Sequence[int]) -> dict[str, Any]:
    rows = rng.normal(size=(2, sum(lengths), WIDTH)).astype(np.float32)
    return {"x": ragged(rows[0], lengths), "y": ragged(rows[1], lengths)}


def inputs() -> tuple[Any, Any]:
    return tuple(fluid.data(name, [None, WIDTH], "float32", lod_level=1) for name in "xy")


def margin() -> Sequence[Any]:
    x, y = inputs()
    ones = layers.fill_constant([layers.shape(x)[0], 1], "float32", 1.0)
    loss = layers.margin_rank_loss(ones, layers.fc(x, 1), layers.fc(y, 1), margin=0.5)
    return [layers.mean(loss), ones]


def shape_tensor() -> Sequence[Any]:
    """The whole shape as one tensor, put together from its parts."""
    x, y = inputs()
    dims = layers.concat([layers.slice(layers.shape(x), [0], [0], [1]), layers.fill_constant([1], "int32", 2)])
    twos = layers.fill_constant(dims, "float32", 2.0)
    return [layers.mean(layers.square(layers.fc(x, 2) * twos - layers.fc(y, 2))), twos]


def divided_by_the_rows() -> Sequence[Any]:
    x, _ = inputs()
    rows = layers.cast(layers.shape(x)[0] * 2 + 1, "float32")
    return [layers.reduce_sum(layers.square(layers.fc(x, 2))) / rows, rows]


def noise() -> Sequence[Any]:
    x, _ = inputs()
    drawn = layers.uniform_random([layers.shape(x)[0], 2], min=-1.0, max=1.0)
    return [layers.mean(layers.square(layers.fc(x, 2) + drawn)), drawn]


def numbered() -> Sequence[Any]:
    """Each row at its place in a table of positions."""
    x, _ = inputs()
    place = layers.range(0, layers.cast(layers.shape(x)[0], "int64"), 1, "int64")
    table = layers.create_parameter([64, 2], "float32", name="table")
    return [layers.mean(layers.square(layers.fc(x, 2) + layers.gather(table, place))), place]


def spread() -> Sequence[Any]:
    """One learned row for every row."""
    x, _ = inputs()
    one = layers.create_parameter([1, 2], "float32", name="one")
    rows = layers.expand(one, [layers.shape(x)[0], 1])
    return [layers.mean(layers.square(layers.fc(x, 2) + rows)), rows]


def reshaped() -> Sequence[Any]:
    """Every row to three and back."""
    x, _ = inputs()
    rows = layers.reshape(layers.fc(x, WIDTH * 2), [layers.shape(x)[0] * WIDTH, 2])
    more = layers.fill_constant([layers.shape(x)[0] * WIDTH, 1], "float32", 3.0)
    return [layers.mean(layers.square(layers.fc(rows, 2) * more)), rows]


def placed() -> Sequence[Any]:
    """The first rows of a table of positions, one for each row."""
    x, _ = inputs()
    table = layers.create_parameter([64, 2], "float32", name="table")
    first = layers.slice(table, axes=[0, 1], starts=[0, 0], ends=[layers.shape(x)[0], 1])
    return [layers.mean(layers.square(layers.fc(x, 1) + first)), first]


def placed_further_on() -> Sequence[Any]:
    """Rows of a table from the third on; with the whole bound as one tensor."""
    x, _ = inputs()
    table = layers.create_parameter([64, 2], "float32", name="table")
    rows = layers.slice(table, axes=[0], starts=[3], ends=layers.shape(x)[0] + 3)
    return [layers.mean(layers.square(layers.fc(x, 2) + rows)), rows]


def cropped() -> Sequence[Any]:
    x, _ = inputs()
    table = layers.create_parameter([64, 3], "float32", name="table")
    rows = layers.crop_tensor(table, shape=[layers.shape(x)[0], 2], offsets=[4, 1])
    return [layers.mean(layers.square(layers.fc(x, 2) + rows)), rows]


def evenly() -> Sequence[Any]:
    """Numbers from 0 to 1, one for each row."""
    x, _ = inputs()
    places = layers.linspace(0.0, 1.0, layers.shape(x)[0], "float32")
    return [layers.mean(layers.square(layers.fc(x, 1) + layers.reshape(places, [-1, 1]))), places]


PROGRAMS = [
    margin, shape_tensor, divided_by_the_rows, noise, numbered, spread, reshaped, placed, placed_further_on, cropped,
    evenly,
]  # fmt: skip


@pytest.mark.parametrize("build", PROGRAMS, ids=lambda f: f.__name__)
def test_padded_equals_exact(build: Callable[[], Sequence[Any]], rng, train_exact) -> None:
    """Rows below, at and one above a capacity, all in two buckets."""
    feeds = [pair(rng, lengths) for lengths in ([2, 4, 1], [3, 4, 1], [5, 1, 3])]
    trained = train(build, feeds)
    trained.assert_close(train_exact(build, feeds))
    assert trained.compilations == 2


def test_a_margin_loss_over_a_stream(rng) -> None:
    """20 batches of as many totals: one compilation for each bucket."""
    feeds = [pair(rng, [total - 3, 3]) for total in rng.permutation(np.arange(9, 9 + BATCHES))]
    trained = train(margin, feeds)
    assert trained.compilations <= 4
    for feed, (_, ones) in zip(feeds, trained.fetches, strict=True):
        np.testing.assert_array_equal(ones, np.ones((feed["x"].shape()[0], 1), np.float32))


def behind_the_first_dim() -> Sequence[Any]:
    """Where only exact rows will do, they are exact."""
    x, y = inputs()
    rows = layers.shape(x)[0]
    square = layers.fill_constant([rows, rows], "float32", 0.5)
    return [layers.mean(layers.matmul(square, layers.fc(x, 2))), square]


def sums_of_two_counts() -> Sequence[Any]:
    x, y = inputs()
    both = layers.shape(x)[0] + layers.shape(y)[0]
    ones = layers.fill_constant([both, 1], "float32", 1.0)
    return [layers.mean(layers.fc(layers.concat([x, y]), 1) * ones), ones]


def fewer_as_there_are_more() -> Sequence[Any]:
    """What is left of 40 rows: there is less room for it where there is room for more rows."""
    x, _ = inputs()
    rest = layers.fill_constant([layers.fill_constant([1], "int32", 40) - layers.shape(x)[0], 1], "float32", 1.0)
    return [layers.mean(layers.fc(x, 1)) * layers.reduce_sum(rest), rest]


def from_the_end() -> Sequence[Any]:
    """A bound that is negative for few rows counts from the end."""
    x, _ = inputs()
    table = layers.create_parameter([64, 2], "float32", name="table")
    rows = layers.slice(table, axes=[0], starts=[0], ends=[layers.shape(x)[0] - 8])
    return [layers.mean(layers.fc(x, 1)) + layers.mean(rows), rows]


EXACT = [behind_the_first_dim, sums_of_two_counts, fewer_as_there_are_more, from_the_end]


@pytest.mark.parametrize("build", EXACT, ids=lambda f: f.__name__)
def test_what_cannot_be_padded_is_exact(build, rng, train_exact) -> None:
    feeds = [pair(rng, lengths) for lengths in ([2, 4, 1], [5, 1, 3])]
    train(build, feeds).assert_close(train_exact(build, feeds))


def test_fewer_rows_than_none_are_none() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, WIDTH], "float32", lod_level=1)
        places = layers.range(0, layers.cast(layers.shape(x)[0] - 4, "int64"), 1, "int64")
        exe = fluid.Executor(fluid.CPUPlace())
        for rows in (7, 5, 3):
            (got,) = exe.run(feed={"x": ragged(np.ones((rows, WIDTH), np.float32), [rows])}, fetch_list=[places])
            np.testing.assert_array_equal(got, np.arange(max(rows - 4, 0)))


STEPS: dict[str, Callable[[Any], Any]] = {
    "scale": lambda n: layers.scale(n, scale=3.0, bias=2.0),
    "add": lambda n: n + layers.fill_constant([1], "int32", 5),
    "double": lambda n: n + n,
    "multiply": lambda n: n * layers.fill_constant([1], "int32", 2),
    "subtract": lambda n: layers.fill_constant([1], "int32", 1000) - n,
    "pick": lambda n: layers.slice(layers.concat([layers.fill_constant([1], "int32", 4), n]), [0], [1], [2]),
    "cast": lambda n: layers.cast(layers.cast(n, "int64"), "int32"),
    "reshape": lambda n: layers.reshape(layers.unsqueeze(n, [1]), [-1]),
    "through_float": lambda n: layers.cast(layers.cast(n, "float32") / 2.0, "int32"),
    "squared": lambda n: n * n,
    "floor": lambda n: layers.elementwise_floordiv(n, layers.fill_constant([1], "int32", 3)),
}


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4), st.integers(1, 8))
def test_arithmetic_on_counts(steps: list[str], rows: int) -> None:
    """Whatever is made of a count is the number that exact rows give."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, WIDTH], "float32", lod_level=1)
        n = layers.shape(x)[0]
        for step in steps:
            n = STEPS[step](n)
        exe = fluid.Executor(fluid.CPUPlace())
        tensor = ragged(np.ones((rows, WIDTH), np.float32), [rows])
        dense = np.ones((rows, WIDTH), np.float32)
        padded = exe.run(main, feed={"x": tensor}, fetch_list=[n])[0]
        exact = exe.run(main, feed={"x": dense}, fetch_list=[n])[0]
    np.testing.assert_array_equal(padded, exact)
    assert padded.dtype == exact.dtype


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("filler", ["fill_constant_batch_size_like", "uniform_random_batch_size_like"])
def test_a_batch_is_as_large_as_that_of_sequences_in_sequences(filler: str, axis: int) -> None:
    """A constant has a row for each sequence of the finest level, a draw for each row of X, none for padding."""
    settings: dict[str, Any] = {"value": 1.0} if filler.startswith("fill") else {"min": 1.0, "max": 1.001}
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, WIDTH], "float32", lod_level=2)
        shape = [-1, 2] if axis == 0 else [2, -1]
        made = getattr(layers, filler)(x, shape, dtype="float32", output_dim_idx=axis, **settings)
        lengths = [[1, 2, 2], [2, 1, 3, 1, 4]]
        rows = fluid.create_lod_tensor(np.ones((11, WIDTH), np.float32), lengths, fluid.CPUPlace())
        exe = fluid.Executor(fluid.CPUPlace())
        got, total = exe.run(feed={"x": rows}, fetch_list=[made, layers.reduce_sum(made)])
    count = 5 if filler.startswith("fill") else 11
    assert got.shape == ((count, 2) if axis == 0 else (2, count))
    assert abs(total.item() - 2 * count) < 0.1


@pytest.mark.parametrize("loss", ["linear_chain_crf", "warpctc", "edit_distance"])
def test_there_are_as_many_losses_as_sequences_in_sequences(loss: str) -> None:
    """Each sequence of the finest level has one, and its gradient, as if it were alone; padding has none."""

    def run(lengths: list[list[int]]) -> list[Any]:
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
            x = fluid.data("x", [None, WIDTH], "float32", lod_level=len(lengths))
            tags = fluid.data("tags", [None, 1], "int64", lod_level=len(lengths))
            x.stop_gradient = False
            weights = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.3))
            if loss == "edit_distance":
                fetched = [*layers.edit_distance(tags, layers.sequence_reverse(tags), normalized=False)]
            else:
                options: dict[str, Any] = {"param_attr": weights} if loss == "linear_chain_crf" else {"blank": 2}
                costs = getattr(layers, loss)(x, layers.cast(tags, "int32") if "blank" in options else tags, **options)
                fetched = [costs, *fluid.gradients([layers.mean(costs)], [x])]
            fetched.append(layers.mean(layers.cast(fetched[0], "float32")))
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(fluid.default_startup_program())
            rows = np.random.RandomState(3).rand(11, WIDTH).astype(np.float32)
            feed = {"x": rows, "tags": np.arange(11).reshape(11, 1) // 2 % 2}
            feed = {name: fluid.create_lod_tensor(v, lengths, fluid.CPUPlace()) for name, v in feed.items()}
            return [np.asarray(v) for v in exe.run(feed=feed, fetch_list=fetched, return_numpy=False)]

    inner = [2, 1, 3, 1, 4]
    for got, expected in zip(run([[1, 2, 2], inner]), run([inner]), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("pool", ["fusion_seqpool_concat", "fusion_seqpool_cvm_concat"])
def test_there_are_as_many_pooled_rows_as_sequences_in_sequences(pool: str) -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x, cvm = fluid.data("x", [None, 3], "float32", lod_level=2), fluid.data("cvm", [None, 2], "float32")
        out = program.global_block().create_var(name="out", dtype="float32")
        inputs, attrs = {"X": [x, x]}, {"pooltype": "SUM", "axis": 1}
        if "cvm" in pool:
            inputs["CVM"], attrs["use_cvm"] = [cvm], False
        program.global_block().append_op(pool, inputs, {"Out": [out]}, attrs)
        total = layers.mean(out)
    rows = np.arange(18, dtype=np.float32).reshape(6, 3)
    feed = {"x": fluid.create_lod_tensor(rows, [[1, 2], [2, 1, 3]], fluid.CPUPlace()), "cvm": np.ones((3, 2), "f")}
    got, mean = fluid.Executor(fluid.CPUPlace()).run(program, feed, [out, total], return_numpy=False)
    kept = np.add.reduceat(rows, [0, 2, 3])[:, 2 if "cvm" in pool else 0 :]
    np.testing.assert_array_equal(np.asarray(got), np.concatenate([kept, kept], 1))
    np.testing.assert_allclose(np.asarray(mean).item(), kept.mean(), rtol=1e-6)
    assert got.recursive_sequence_lengths() == [[1, 1, 1]]
