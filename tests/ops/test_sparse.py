"""Sparse values in sums, scalings and clips; repeated indices; ops with sizes that values decide."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from lowering.errors import SlotError
from lowering.ops.math.arithmetic import clip, scale, sum_
from lowering.ops.tensor.indexing import gather
from lowering.values import Meta, SelectedRows

L = fluid.layers


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


def rows(indices, *values, count=None):
    """SelectedRows of height 6, the k-th row holding the k-th number twice."""
    stacked = np.repeat(np.array(values, np.float64)[:, None], 2, axis=1)
    return SelectedRows(np.array(indices, np.int64), stacked, 6, None if count is None else np.int32(count))


def entries(sparse):
    """[(row, number)] of the true entries."""
    count = int(sparse.nrows) if sparse.nrows is not None else len(sparse.rows)
    return [(int(r), float(v[0])) for r, v in zip(sparse.rows[:count], sparse.values[:count], strict=True)]


def test_sparse_sum_merges_rows_in_rising_order():
    out = sum_.fn([rows([4, 1], 1.0, 2.0), rows([1, 0], 3.0, 4.0)])
    assert entries(out) == [(0, 4.0), (1, 5.0), (4, 1.0)]
    np.testing.assert_array_equal(np.asarray(out.values)[3:], 0)


def test_sparse_sum_leaves_padding_out():
    """Padding entries carry a valid row and zeros: they make no row of their own."""
    out = sum_.fn([rows([2, 5, 5], 1.0, 0.0, 0.0, count=1), rows([3, 3], 0.0, 0.0, count=0)])
    assert entries(out) == [(2, 1.0)]


def test_sparse_sum_leaves_values_without_rows_out():
    """A table whose rows were cleared keeps its old values."""
    out = sum_.fn([rows([], 1.0, 2.0), rows([4, 1], 3.0, 4.0), rows([], 5.0)])
    assert entries(out) == [(4, 3.0), (1, 4.0)]


def test_rows_stay_as_they_come_unless_one_is_repeated():
    assert entries(sum_.fn([rows([5, 2, 2], 1.0, 2.0, 0.0, count=2), rows([3, 0], 3.0, 4.0)])) == [
        (5, 1.0), (2, 2.0), (3, 3.0), (0, 4.0)
    ]  # fmt: skip
    assert entries(sum_.fn([rows([5, 2, 5], 1.0, 2.0, 3.0)])) == [(2, 2.0), (5, 4.0)]
    merge = lowering.get_op("merge_selected_rows").fn
    assert entries(merge(rows([5, 4, 1], 1.0, 2.0, 3.0))) == [(5, 1.0), (4, 2.0), (1, 3.0)]
    longer = rows([5, 4], 1.0, 2.0)
    longer = SelectedRows(longer.rows, np.concatenate([longer.values, longer.values]), longer.height)
    assert entries(merge(longer)) == [(5, 1.0), (4, 2.0)]  # as where rows come from a server, and values with padding
    clipped = lowering.get_op("clip_by_norm").fn(rows([3, 1], 3.0, 4.0), max_norm=np.sqrt(50.0))
    assert entries(clipped) == [(3, 3.0), (1, 4.0)]


def test_padding_entries_stay_zero():
    """They carry a valid row: a bound above zero or a bias would write into a row that no look-up touched."""
    padded = rows([4, 1, 0], 1.0, 2.0, 0.0, count=2)
    clipped = clip.fn(padded, min_=1.5, max_=2.5)
    np.testing.assert_array_equal(np.asarray(clipped.to_dense())[:, 0], [0, 2, 0, 0, 1.5, 0])
    biased = scale.fn(padded, bias=1.0)
    np.testing.assert_array_equal(np.asarray(biased.to_dense())[:, 0], [0, 3, 0, 0, 2, 0])


@pytest.mark.parametrize(("op", "expected"), [("square", [1, 16, 1]), ("sqrt", [1, 2, 1]), ("abs", [1, 4, 1])])
def test_functions_of_sparse_values_work_entry_by_entry(op, expected):
    out = lowering.get_op(op).fn(rows([4, 1, 4], 1.0, 4.0, 1.0))
    assert entries(out) == list(zip([4, 1, 4], expected, strict=True))


def test_sparse_and_dense_sum_is_dense():
    out = sum_.fn([np.ones((6, 2)), rows([4, 4], 1.0, 2.0)])
    np.testing.assert_array_equal(out, np.array([1, 1, 1, 1, 4, 1.0])[:, None] * np.ones(2))


def test_dense_sum_refuses_unequal_shapes():
    with pytest.raises(SlotError, match="one shape"):
        sum_.fn([np.ones((2, 2)), np.ones((3, 2))])


def test_sparse_scale_and_clip():
    assert entries(scale.fn(rows([4, 1], 1.0, 2.0), scale=3.0)) == [(4, 3.0), (1, 6.0)]
    clipped = clip.fn(rows([4, 1, 4], 1.0, 2.0, 3.0), min_=0.5, max_=2.5)
    np.testing.assert_array_equal(np.asarray(clipped.to_dense())[:, 0], [0, 2, 0, 0, 2.5, 0])


@pytest.mark.parametrize(("overwrite", "expected"), [(True, [0, 3, 2]), (False, [0, 4, 2])])
def test_gather_gradient_of_repeated_rows(overwrite, expected):
    """Fluid's default: the last of the gradients of one row stays."""
    gradient = lowering.get_op("gather_grad")
    index, d_out = lowering.LoDArray(np.array([1, 2, 1])), lowering.LoDArray(np.array([[1.0], [2.0], [3.0]]))
    out = gradient.fn(
        Meta((3, 1), np.dtype(np.float64)), index, d_out, overwrite=overwrite, axis_=0, ctx=SimpleNamespace(release=0)
    )
    np.testing.assert_array_equal(np.asarray(out)[:, 0], expected)
    assert gather.gradient is gradient


def test_data_dependent_sizes_are_exact_within_a_program():
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [-1])
        doubled = L.scale(x, 2.0)
        places = L.where(L.greater_than(doubled, L.zeros([1], "float32")))
        values, index, count = L.unique_with_counts(doubled)
        outs = [L.reduce_sum(L.cast(places, "float32")), values, index, L.scale(count, 10.0)]
        exe = fluid.Executor(fluid.CPUPlace())
        for feed, wanted in (
            ([1, -1, 1, 3], [5, [2, -2, 6], [0, 1, 0, 2], [20, 10, 10]]),
            ([-1, -1], [0, [-2], [0, 0], [20]]),
        ):
            got = exe.run(fluid.default_main_program(), feed={"x": np.array(feed, "float32")}, fetch_list=outs)
            for g, w in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(g.reshape(-1), np.atleast_1d(w))


def test_a_sum_without_rows_has_its_width():
    """Values of shape [0, 2]; Paddle leaves them without memory, of shape [0]."""
    out = sum_.fn([rows([]), rows([])])
    assert entries(out) == [] and out.values.shape == (0, 2) and out.height == 6
