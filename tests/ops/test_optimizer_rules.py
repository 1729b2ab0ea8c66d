"""Optimizer ops against their formulas in NumPy, with dense and sparse gradients."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax import layers
from lowering import SelectedRows, SlotError
from lowering.ops.sparse import merge_rows

ROWS, WIDTH = 7, 3
LR = np.array([0.1], np.float64)


def call(op_type: str, **values: Any) -> list[np.ndarray]:
    with jax.enable_x64(True):
        result = lowering.get_op(op_type)(**values)
        return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


def table(rng: np.random.Generator, positive: bool = False) -> np.ndarray:
    x = rng.normal(size=(ROWS, WIDTH))
    return np.abs(x) + 0.1 if positive else x


def sparse(rng: np.random.Generator, nrows: int | None = None) -> tuple[SelectedRows, np.ndarray]:
    """A sparse gradient with a repeated row (and padding from ``nrows`` on), and the same as a dense array."""
    rows = np.array([5, 2, 5, 0], np.int64)
    values = rng.normal(size=(4, WIDTH))
    count = len(rows) if nrows is None else nrows
    if nrows is not None:
        values[nrows:] = 0
    dense = np.zeros((ROWS, WIDTH))
    np.add.at(dense, rows[:count], values[:count])
    return SelectedRows(rows, values, ROWS, None if nrows is None else np.int32(nrows)), dense


def test_merge_rows_adds_repeated_rows_in_ascending_order(rng: np.random.Generator) -> None:
    grad, dense = sparse(rng)
    with jax.enable_x64(True):
        merged = merge_rows(grad)
    count = int(merged.nrows)
    assert np.asarray(merged.rows)[:count].tolist() == [0, 2, 5]
    np.testing.assert_allclose(np.asarray(merged.values)[:count], dense[[0, 2, 5]])


def test_merge_rows_of_an_empty_batch_touches_no_row() -> None:
    padding = SelectedRows(np.array([3, 3], np.int64), np.zeros((2, WIDTH)), ROWS, np.int32(0))
    with jax.enable_x64(True):
        merged = merge_rows(padding)
        assert int(merged.nrows) == 0
        assert (np.asarray(merged.rows) == ROWS).all()
        none = merge_rows(SelectedRows(np.zeros(0, np.int64), np.zeros((0, WIDTH)), ROWS))
    assert int(none.nrows) == 0


@pytest.mark.parametrize("nrows", [None, 2])
def test_sgd(rng: np.random.Generator, nrows: int | None) -> None:
    p = table(rng)
    grad, dense = sparse(rng, nrows)
    (out,) = call("sgd", param=p, learning_rate=LR, grad=grad)
    np.testing.assert_allclose(out, p - 0.1 * dense, rtol=1e-12)
    (out,) = call("sgd", param=p, learning_rate=LR, grad=dense)
    np.testing.assert_allclose(out, p - 0.1 * dense, rtol=1e-12)


def found(rows: list[int]) -> list[int]:
    """The rows that a binary search finds among ``rows``, as the kernels of momentum and rmsprop make it."""
    kept = []
    for row in rows:
        begin, last = 0, len(rows) - 1
        while begin <= last and rows[middle := (begin + last) >> 1] != row:
            begin, last = (middle + 1, last) if rows[middle] < row else (begin, middle - 1)
        kept += [row] * (begin <= last)
    return kept


zeros = np.zeros((ROWS, WIDTH))
OF_ROWS: dict[str, dict[str, Any]] = {
    "momentum": {"velocity": zeros, "mu": 0.9},
    "rmsprop": {"mean_square": zeros, "moment": zeros, "mean_grad": zeros},
}


@pytest.mark.parametrize("op_type", OF_ROWS)
@pytest.mark.parametrize("nrows", [None, 5])
def test_rows_that_come_once_each_are_looked_up_in_the_order_in_which_they_come(
    rng: np.random.Generator, op_type: str, nrows: int | None
) -> None:
    """Some are passed (docs/deviations.md tells what Paddle does); all are found once one is repeated."""
    seen = set()
    for _ in range(20):
        rows = rng.permutation(ROWS).tolist()
        values = rng.normal(size=(ROWS, WIDTH))
        values[nrows or ROWS :] = 0
        kept = found(rows[:nrows])
        seen.add(len(kept))
        grad = SelectedRows(np.array(rows), values, ROWS, None if nrows is None else np.int32(nrows))
        dense = np.zeros((ROWS, WIDTH))
        dense[kept] = values[[rows.index(row) for row in kept]]
        state = {"param": zeros, "learning_rate": LR, **OF_ROWS[op_type]}
        for got, wanted in zip(call(op_type, grad=grad, **state), call(op_type, grad=dense, **state), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-12)
    assert len(seen) > 1


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_is_the_same_for_a_sparse_gradient(rng: np.random.Generator, nesterov: bool) -> None:
    p, v = table(rng), table(rng)
    grad, dense = sparse(rng)
    new_v = 0.9 * v + dense
    step = dense + 0.9 * new_v if nesterov else new_v
    for given in (grad, dense):
        out, velocity = call(
            "momentum", param=p, grad=given, velocity=v, learning_rate=LR, mu=0.9, use_nesterov=nesterov
        )
        np.testing.assert_allclose(velocity, new_v, rtol=1e-12)
        np.testing.assert_allclose(out, p - 0.1 * step, rtol=1e-12)


def test_rmsprop_is_the_same_for_a_sparse_gradient(rng: np.random.Generator) -> None:
    p, mean, moment = table(rng), table(rng) * 0.01, table(rng)
    square = table(rng, positive=True) + 1
    grad, dense = sparse(rng)
    options = {"epsilon": 1e-6, "decay": 0.9, "momentum": 0.5, "centered": True}
    state = {"param": p, "mean_square": square, "learning_rate": LR, "moment": moment, "mean_grad": mean}
    new_square, new_mean = 0.9 * square + 0.1 * dense**2, 0.9 * mean + 0.1 * dense
    new_moment = 0.5 * moment + 0.1 * dense / np.sqrt(new_square - new_mean**2 + 1e-6)
    for given in (grad, dense):
        results = call("rmsprop", grad=given, **state, **options)
        for got, expected in zip(results, (p - new_moment, new_moment, new_square, new_mean), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_adagrad_changes_only_the_rows_of_a_sparse_gradient(rng: np.random.Generator) -> None:
    p, m = table(rng), table(rng, positive=True)
    grad, dense = sparse(rng)
    new_m = m + dense**2
    expected = p - 0.1 * dense / (np.sqrt(new_m) + 1e-6)
    out, moment = call("adagrad", param=p, grad=grad, moment=m, learning_rate=LR, epsilon=1e-6)
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    np.testing.assert_allclose(moment, new_m, rtol=1e-12)
    untouched = [1, 3, 4, 6]
    assert (out[untouched] == p[untouched]).all()


def adam_step(p: Any, g: Any, m1: Any, m2: Any, power: tuple[float, float]) -> tuple[Any, Any, Any]:
    m1, m2 = 0.9 * m1 + 0.1 * g, 0.99 * m2 + 0.01 * g * g
    rate = 0.1 * np.sqrt(1 - power[1]) / (1 - power[0])
    return p - rate * m1 / (np.sqrt(m2) + 1e-8), m1, m2


@pytest.mark.parametrize("lazy", [False, True])
def test_adam_with_a_sparse_gradient(rng: np.random.Generator, lazy: bool) -> None:
    p, m1, m2 = table(rng), table(rng), table(rng, positive=True)
    grad, dense = sparse(rng)
    out = call(
        "adam", param=p, grad=grad, learning_rate=LR, moment1=m1, moment2=m2,
        beta1_pow=np.array([0.81]), beta2_pow=np.array([0.98]), beta1=0.9, beta2=0.99, epsilon=1e-8, lazy_mode=lazy,
        in_place=frozenset({"Beta1PowOut", "Beta2PowOut"}),
    )  # fmt: skip
    expected = adam_step(p, dense, m1, m2, (0.81 * 0.9, 0.98 * 0.99))
    touched = np.zeros((ROWS, 1), bool)
    touched[[0, 2, 5]] = True
    for got, new, old in zip(out[:3], expected, (p, m1, m2), strict=True):
        np.testing.assert_allclose(got, np.where(touched, new, old) if lazy else new, rtol=1e-12)
    np.testing.assert_allclose([float(out[3][0]), float(out[4][0])], [0.81 * 0.9, 0.98 * 0.99])


def test_adam_reads_betas_from_tensors(rng: np.random.Generator) -> None:
    p, g, m1, m2 = table(rng), table(rng), table(rng), table(rng, positive=True)
    out = call(
        "adam", param=p, grad=g, learning_rate=LR, moment1=m1, moment2=m2, beta1_pow=np.array([0.9]),
        beta2_pow=np.array([0.99]), beta1_tensor=np.array([0.9]), beta2_tensor=np.array([0.99]), beta1=0.1, beta2=0.2,
    )  # fmt: skip
    for got, expected in zip(out[:3], adam_step(p, g, m1, m2, (0.9, 0.99)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("power", [-0.5, -0.7])
def test_ftrl(rng: np.random.Generator, power: float) -> None:
    p, s, linear, g = table(rng), table(rng, positive=True), table(rng), table(rng)
    out = call(
        "ftrl", param=p, squared_accumulator=s, linear_accumulator=linear, grad=g, learning_rate=LR, l1=0.5, l2=0.3,
        lr_power=power,
    )  # fmt: skip
    new_s = s + g * g
    new_linear = linear + g - (new_s**-power - s**-power) / 0.1 * p
    shrunk = (0.5 * np.sign(new_linear) - new_linear) / (new_s**-power / 0.1 + 0.6)
    np.testing.assert_allclose(out[0], np.where(np.abs(new_linear) > 0.5, shrunk, 0), rtol=1e-10)
    np.testing.assert_allclose(out[1], new_s, rtol=1e-12)
    np.testing.assert_allclose(out[2], new_linear, rtol=1e-10)


@pytest.mark.parametrize("l1", [0.0, 0.4])
def test_proximal_steps(rng: np.random.Generator, l1: float) -> None:
    p, g, m = table(rng), table(rng), table(rng, positive=True)

    def shrink(x: np.ndarray) -> np.ndarray:
        return np.sign(x) * np.maximum(np.abs(x) - 0.1 * l1, 0) / (1 + 0.1 * 0.2)

    (out,) = call("proximal_gd", param=p, grad=g, learning_rate=LR, l1=l1, l2=0.2)
    np.testing.assert_allclose(out, shrink(p - 0.1 * g), rtol=1e-12)
    out, moment = call("proximal_adagrad", param=p, moment=m, grad=g, learning_rate=LR, l1=l1, l2=0.2)
    np.testing.assert_allclose(moment, m + g * g, rtol=1e-12)
    np.testing.assert_allclose(out, shrink(p - 0.1 * g / np.sqrt(m + g * g)), rtol=1e-12)


def test_lars_momentum_without_norms_is_momentum() -> None:
    zeros = np.zeros((ROWS, WIDTH))
    g = np.ones((ROWS, WIDTH))
    out, velocity = call(
        "lars_momentum", param=zeros, grad=g, velocity=zeros, learning_rate=LR, mu=0.9,
        lars_coeff=0.01, lars_weight_decay=0.1,
    )  # fmt: skip
    np.testing.assert_allclose(velocity, 0.1 * g)
    np.testing.assert_allclose(out, -0.1 * g)


def test_dpsgd_clips_and_adds_one_draw_of_noise(rng: np.random.Generator) -> None:
    p, g = table(rng), table(rng) * 10
    norm = np.sqrt((g * g).sum())
    key = jax.random.key(3)
    (quiet,) = call("dpsgd", param=p, grad=g, learning_rate=LR, clip=2.0, batch_size=4.0, sigma=0.0, key=key)
    np.testing.assert_allclose(quiet, p - 0.1 * g / (norm / 2), rtol=1e-12)
    (noisy,) = call("dpsgd", param=p, grad=g, learning_rate=LR, clip=2.0, batch_size=4.0, sigma=8.0, key=key)
    noise = noisy - quiet
    assert np.ptp(noise) < 1e-12
    assert np.abs(noise).min() > 0


def accumulate(steps: int, **options: Any) -> dict[str, np.ndarray]:
    names = ["sum_1", "sum_2", "sum_3", "num_accumulates", "old_num_accumulates", "num_updates"]
    state = {name: np.zeros(2) if "sum" in name else np.zeros(1, np.int64) for name in names}
    for step in range(steps):
        values = {f"in_{name}": value for name, value in state.items()}
        out = call("average_accumulates", param=np.full(2, step + 1.0), **values, **options)
        state = dict(zip(names, out, strict=True))
    return state


def test_average_accumulates_starts_a_new_window() -> None:
    state = accumulate(5, average_window=0.5, min_average_window=2, max_average_window=3)
    # Windows: updates 1, 2 | 3, 4 (2 >= min(3, 4 * 0.5)) | 5.
    assert state["num_updates"].tolist() == [5]
    assert state["num_accumulates"].tolist() == [1]
    assert state["old_num_accumulates"].tolist() == [2]
    assert state["sum_3"].tolist() == [7, 7]
    assert state["sum_1"].tolist() == [5, 5]


@pytest.mark.parametrize("op_type", ["lars_momentum", "adamax", "decayed_adagrad", "adadelta", "ftrl", "dpsgd"])
def test_ops_without_a_sparse_kernel_say_so(rng: np.random.Generator, op_type: str) -> None:
    definition = lowering.get_op(op_type)
    grad, _ = sparse(rng)
    values: dict[str, Any] = {slot.param: table(rng, positive=True) for slot in definition.inputs}
    values |= {"grad": grad}
    if "learning_rate" in values:
        values["learning_rate"] = LR
    if "beta1_pow" in values:
        values["beta1_pow"] = np.array([0.9])
    options = {"mu": 0.9} if op_type == "lars_momentum" else {}
    if "key" in definition.special:
        options["key"] = jax.random.key(0)
    with pytest.raises(SlotError, match=f"op {op_type} expects a dense gradient"):
        call(op_type, **values, **options)


def test_get_tensor_from_selected_rows_takes_the_values(rng: np.random.Generator) -> None:
    grad, _ = sparse(rng, nrows=3)
    with jax.enable_x64(True):
        rows = lowering.get_op("get_tensor_from_selected_rows")(grad)
    np.testing.assert_array_equal(rows.data, np.asarray(grad.values)[[0, 1, 2, 0]])  # padding repeats a valid row
    assert rows.nrows == 3
    with pytest.raises(SlotError, match="merge_selected_rows expects SelectedRows"):
        call("merge_selected_rows", x=np.zeros(3))


def test_rows_of_merged_gradients_are_only_those_that_there_are() -> None:
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program(), fluid.Program()):
        ids = fluid.data("ids", [None, 1], "int64")
        found = layers.embedding(ids, [6, 2], is_sparse=True, param_attr=fluid.initializer.Constant(0.5))
        gradient = fluid.backward.append_backward(layers.reduce_sum(found))[0][1]
        rows = layers.get_tensor_from_selected_rows(layers.merge_selected_rows(gradient))
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        feed = {"ids": np.array([[1], [3], [1], [1]])}
        values, mean = exe.run(feed=feed, fetch_list=[rows, layers.reduce_mean(rows)])
    np.testing.assert_array_equal(values, [[3, 3], [1, 1]])
    assert mean == 2


def test_dgc_is_momentum_and_then_descent(rng: np.random.Generator) -> None:
    param, grad, velocity = table(rng), table(rng), table(rng)
    given = {"nranks": np.array([2.0]), "param": param, "grad": grad, "velocity": velocity, "learning_rate": LR}
    mean = grad / 2
    for step, begin, expected in (
        (9.9, 10.9, (mean, param - 0.1 * (0.5 * velocity + mean), 0.5 * velocity + mean)),
        (10.2, 10.9, (mean, param - 0.1 * mean, velocity)),  # both are step 10
        (3.0, -0.5, (mean, param - 0.1 * mean, velocity)),
        (3.0, -1.0, (grad, param, velocity)),
    ):
        got = call("dgc_momentum", current_step=np.array([step]), mu=0.5, rampup_begin_step=begin, **given)
        for now, then in zip(got, expected, strict=True):
            np.testing.assert_allclose(now, then, rtol=1e-12)


def test_dgc_clips_from_its_first_step_on() -> None:
    x = np.array([3.0, 4.0])
    for step, begin, norm in ((9.0, 10.0, 5.0), (10.0, 10.9, 1.0), (9.0, -1.0, 5.0)):
        (got,) = call("dgc_clip_by_norm", current_step=np.array([step]), x=x, max_norm=1.0, rampup_begin_step=begin)
        np.testing.assert_allclose(np.linalg.norm(got), norm, rtol=1e-6)
