"""cond, case, Switch and IfElse: values and gradients of the branch taken, zeros for the other."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.framework.view import program_view
from lowering.engine.runner import Runner
from lowering.errors import UninitializedError
from tests.control_flow.running import build, run

layers = fluid.layers


def branching():
    def network():
        x = fluid.data("x", [3], "float64")
        x.stop_gradient = False
        a = layers.create_parameter([3], "float64", name="a")
        b = layers.create_parameter([3], "float64", name="b")
        small = layers.less_than(layers.reduce_sum(x), layers.fill_constant([1], "float64", 1.0))
        out = layers.cond(
            small,
            lambda: layers.elementwise_mul(x, a),
            lambda: layers.elementwise_mul(layers.elementwise_mul(x, b), x),
        )
        loss = layers.reduce_sum(out)
        return [loss, *fluid.gradients([loss], [x, a, b])]

    return build(network)


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("small", [False, True])
def test_cond_differentiates_the_branch_taken(rng, small: bool, interpret: bool) -> None:
    main, startup, fetch = branching()
    x = rng.normal(size=3) - (9.0 if small else -9.0)
    a, b = rng.normal(size=3), rng.normal(size=3)
    got = run(main, startup, {"x": x}, fetch, {"a": a, "b": b}, interpret)
    want = [x * a, a, x, 0 * x] if small else [x * b * x, 2 * x * b, 0 * x, x * x]
    np.testing.assert_allclose(got[0], [want[0].sum()], rtol=1e-12)
    for mine, theirs in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_switch_runs_the_first_case_that_holds() -> None:
    def network():
        step = fluid.data("step", [1], "float32")
        out = layers.create_global_var([1], 0.0, "float32", persistable=True, name="out")
        limits = [layers.fill_constant([1], "float32", v) for v in (1.0, 2.0)]
        with layers.Switch() as cases:
            for value, limit in zip((10.0, 20.0), limits, strict=True):
                with cases.case(layers.less_than(step, limit)):
                    layers.assign(layers.fill_constant([1], "float32", value), out)
            with cases.default():
                layers.assign(layers.fill_constant([1], "float32", 30.0), out)
        return [out]

    main, startup, fetch = build(network)
    for step, want in ((0.5, 10.0), (1.5, 20.0), (2.5, 30.0)):
        assert run(main, startup, {"step": np.array([step], "f")}, fetch)[0].tolist() == [want]


def test_switch_case_by_index_and_default() -> None:
    def network():
        index = fluid.data("i", [1], "int64")
        fns = {k: lambda v=float(k): layers.fill_constant([2], "float32", v) for k in (1, 4)}
        return [layers.switch_case(index, fns, lambda: layers.fill_constant([2], "float32", -1.0))]

    main, startup, fetch = build(network)
    for index, want in ((1, 1.0), (4, 4.0), (2, -1.0)):
        assert run(main, startup, {"i": np.array([index])}, fetch)[0].tolist() == [want, want]


def test_a_branch_that_is_not_taken_may_read_what_is_not_fed() -> None:
    def network():
        index, fed = fluid.data("i", [1], "int64"), [fluid.data(name, [-1], "float32") for name in "ab"]
        weight = layers.create_parameter([1], "float32", name="w")
        fns = {k: lambda x=x: layers.reduce_sum(x * weight) for k, x in enumerate(fed)}
        loss = layers.switch_case(index, fns)
        return [loss, *fluid.gradients([loss], [weight])]

    main, startup, fetch = build(network)
    for index, name in enumerate("ab"):
        feed = {"i": np.array([index]), name: np.arange(3 + index, dtype="f")}
        loss, gradient = run(main, startup, feed, fetch, {"w": np.array([2], "f")})
        assert loss.tolist() == [2 * gradient[0]] and gradient.tolist() == [feed[name].sum()]
        with pytest.raises(UninitializedError, match="was not fed"):
            run(main, startup, {"i": np.array([1 - index]), name: feed[name]}, fetch)


@pytest.mark.parametrize("signs", [[1, -1, 1, -1, -1], [1, 1, 1, 1, 1], [-1, -1, -1, -1, -1]])
def test_ifelse_treats_each_row_by_its_condition(rng, signs: list[int]) -> None:
    """Also when one side has no rows at all: its parameter then has a zero gradient."""

    def network():
        x = fluid.data("x", [None, 2], "float64")
        x.stop_gradient = False
        a = layers.create_parameter([2], "float64", name="a")
        b = layers.create_parameter([2], "float64", name="b")
        first = layers.slice(x, axes=[1], starts=[0], ends=[1])
        zero = layers.fill_constant_batch_size_like(first, [-1, 1], "float64", 0.0)
        branches = layers.IfElse(layers.less_than(first, zero))
        with branches.true_block():
            branches.output(layers.elementwise_mul(branches.input(x), a))
        with branches.false_block():
            part = branches.input(x)
            branches.output(layers.elementwise_mul(layers.elementwise_mul(part, part), b))
        out = branches()[0]
        loss = layers.reduce_sum(out)
        return [out, *fluid.gradients([loss], [x, a, b])]

    x = np.abs(rng.normal(size=(5, 2))) * np.array(signs)[:, None]
    a, b = rng.normal(size=2), rng.normal(size=2)
    main, startup, fetch = build(network)
    out, d_x, d_a, d_b = run(main, startup, {"x": x}, fetch, {"a": a, "b": b})
    negative = x[:, :1] < 0
    np.testing.assert_allclose(out, np.where(negative, x * a, x * x * b), rtol=1e-12)
    np.testing.assert_allclose(d_x, np.where(negative, a, 2 * x * b), rtol=1e-12)
    np.testing.assert_allclose(d_a, np.where(negative, x, 0).sum(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(d_b, np.where(negative, 0, x * x).sum(0), rtol=1e-12, atol=1e-12)


def test_gradients_of_a_cond_inside_a_while(rng) -> None:
    """h w in the first step, h h w in the two after it: ((x w)^2 w)^2 w."""

    def network():
        x = fluid.data("x", [3], "float64")
        x.stop_gradient = False
        w = layers.create_parameter([3], "float64", name="w")
        i, one, n = (layers.fill_constant([1], "int64", k) for k in (0, 1, 3))
        values = layers.array_write(x, i)
        again = layers.less_than(i, n)
        with layers.While(again).block():
            h = layers.array_read(values, i)
            linear = layers.elementwise_mul
            after = layers.cond(layers.less_than(i, one), lambda: linear(h, w), lambda: linear(linear(h, h), w))
            layers.increment(i, in_place=True)
            layers.array_write(after, i, values)
            layers.less_than(i, n, cond=again)
        loss = layers.reduce_sum(layers.array_read(values, n))
        return [loss, *fluid.gradients([loss], [x, w])]

    x, w = rng.normal(size=3), rng.normal(size=3)
    main, startup, fetch = build(network)
    loss, d_x, d_w = run(main, startup, {"x": x}, fetch, {"w": w})
    np.testing.assert_allclose(loss, [np.sum(x**4 * w**7)], rtol=1e-10)
    np.testing.assert_allclose(d_x, 4 * x**3 * w**7, rtol=1e-10)
    np.testing.assert_allclose(d_w, 7 * x**4 * w**6, rtol=1e-10)


@pytest.mark.parametrize("interpret", [False, True])
def test_the_gradient_of_what_a_branch_alone_writes_stays_under_its_name(interpret: bool) -> None:
    def network():
        x = fluid.data("x", [3, 1], "float32")
        x.stop_gradient = False
        choice = layers.IfElse(layers.less_than(x, layers.fill_constant([3, 1], "float32", 1.5)))
        with choice.true_block():
            choice.output(choice.input(x) * 2.0)
        with choice.false_block():
            choice.output(choice.input(x) * 3.0)
        y = choice()[0]
        fluid.gradients([layers.reduce_sum(y * y)], [x])
        return [f"ifelse_0_output_{k}@GRAD" for k in range(2)]

    main, startup, fetch = build(network)
    x = np.asarray([[1.0], [2.0], [3.0]], "float32")
    true, false = run(main, startup, {"x": x}, fetch, {}, interpret)
    assert true.tolist() == [[4.0]]
    assert false.tolist() == [[12.0], [18.0]]


def test_conditions_known_inside_of_a_branch_are_known_to_its_gradient() -> None:
    """The outer condition is not known; those inside it are, two levels deep, and decide which gradients there are."""

    def network():
        x = fluid.data("x", [1], "float64")
        x.stop_gradient = False
        low, high = (layers.fill_constant([1], "float64", k) for k in (0.3, 9.0))
        no, yes = layers.greater_than(low, high), layers.less_than(low, high)

        def deep() -> Any:
            return layers.cond(no, lambda: layers.square(x), lambda: layers.scale(x, 3.0))

        def inner() -> Any:
            return layers.cond(no, deep, lambda: layers.cond(yes, lambda: layers.square(x), deep))

        return fluid.gradients([layers.cond(layers.greater_than(x, high), lambda: layers.scale(x, 2.0), inner)], [x])

    main, startup, fetch = build(network)
    for x, slope in ((0.5, 1.0), (10.0, 2.0)):
        np.testing.assert_allclose(run(main, startup, {"x": np.full(1, x)}, fetch), [[slope]], rtol=1e-12)


def test_what_ran_is_known_where_the_gradient_is_another_step() -> None:
    """As where an op between the two runs on the host: the branch that never ran has no values to compute with."""

    def network():
        x = fluid.data("x", [1], "float64")
        x.stop_gradient = False
        low, high = (layers.fill_constant([1], "float64", k) for k in (0.3, 9.0))

        def never() -> Any:
            return layers.cond(layers.less_than(x, high), lambda: layers.square(x), lambda: layers.scale(x, 3.0))

        result = layers.cond(layers.greater_than(low, high), never, lambda: layers.scale(x, 5.0))
        return fluid.gradients([result], [x])

    main, _, (d_x,) = build(network)
    view = program_view(main)
    ops = view.blocks[0].ops
    cut = next(k for k, op in enumerate(ops) if op.is_backward)
    with jax.enable_x64(True):
        env = {"x": np.full(1, 0.5)}
        for part in (ops[:cut], ops[cut:]):
            env = jax.jit(partial(_ran, view, part))(env)
    np.testing.assert_allclose(env[d_x.name], [5.0], rtol=1e-12)


def _ran(view: Any, ops: Any, env: dict[str, Any]) -> dict[str, Any]:
    env = dict(env)
    Runner(view, key=jax.random.key(0)).run_ops(ops, env)
    return env


def _merging(lengths: list[list[int]], mask: list[int], level: int, change: Any, of: str = "x") -> tuple[Any, Any]:
    """(what is merged, the gradient of the sum of its squares) of rows 1, 2, ... that are split by the mask."""

    def network():
        x = fluid.data("x", [None, 1], "float64", lod_level=len(lengths))
        x.stop_gradient = False
        y = fluid.data("y", [None, 1], "bool")
        parts = layers.control_flow.split_lod_tensor(x, y, level)
        for part in parts:
            part.desc.set_lod_level(len(lengths) - level)
        parts = change(*parts)
        whole = layers.control_flow.merge_lod_tensor(*parts, {"x": x, "y": y}[of], y, level)
        return [whole, *fluid.gradients(layers.reduce_sum(layers.square(whole)), x)]

    main, startup, fetch = build(network)
    rows = np.arange(1.0, 1 + sum(lengths[-1]))[:, None]
    feed = {"x": fluid.create_lod_tensor(rows, lengths, fluid.CPUPlace()), "y": np.array(mask, bool)[:, None]}
    return fluid.Executor().run(main, feed, fetch, return_numpy=False)


def _doubled(true: Any, false: Any) -> tuple[Any, Any]:
    return layers.sequence_concat([true, true]), layers.sequence_concat([false, false, false])


def _summed(true: Any, false: Any) -> tuple[Any, Any]:
    return layers.sequence_pool(true, "sum"), layers.sequence_pool(false, "sum")


@pytest.mark.parametrize("of", ["x", "y"])
def test_merged_sequences_are_as_long_as_the_branches_made_them(of: str) -> None:
    whole, gradient = _merging([[2, 1, 1]], [1, 0, 1], 0, _doubled, of)
    np.testing.assert_array_equal(np.ravel(whole), [1, 2, 1, 2, 3, 3, 3, 4, 4])
    assert whole.recursive_sequence_lengths() == [[4, 3, 2]]
    np.testing.assert_array_equal(np.ravel(gradient), [4, 8, 18, 16])
    whole, gradient = _merging([[2, 1, 1]], [1, 0, 1], 0, _summed, of)
    assert np.ravel(whole).tolist() == [3, 3, 4] and not whole.lod()
    np.testing.assert_array_equal(np.ravel(gradient), [6, 6, 6, 8])


@pytest.mark.parametrize(("level", "mask"), [(0, [0, 1, 0]), (1, [0, 1, 1, 0, 1])])
def test_sequences_of_sequences_are_split_and_merged_whole(level: int, mask: list[int]) -> None:
    lengths = [[2, 1, 2], [2, 1, 3, 1, 1]]
    whole, gradient = _merging(lengths, mask, level, lambda *parts: parts)
    np.testing.assert_array_equal(np.ravel(whole), np.arange(1, 9))
    np.testing.assert_array_equal(np.ravel(gradient), 2 * np.arange(1, 9))
    assert whole.recursive_sequence_lengths() == lengths


def test_an_empty_sequence_is_merged_like_any_other() -> None:
    whole, _ = _merging([[2, 0, 1, 2]], [1, 1, 0, 1], 0, lambda *parts: parts)
    assert np.ravel(whole).tolist() == [1, 2, 3, 4, 5] and whole.recursive_sequence_lengths() == [[2, 0, 1, 2]]


def test_branches_of_different_levels_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match="cannot merge InTrue with 0 levels"):
        _merging([[2, 1]], [1, 0], 0, lambda true, false: (layers.sequence_pool(true, "sum"), false))


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("taken", [False, True])
def test_a_branch_without_rows_may_have_another_form(taken: bool, ragged: bool) -> None:
    """Mask R-CNN as published: masks [N, C, H, W] of the boxes found, or the [N, 6] that says there are none."""

    def network():
        x = fluid.data("x", [None, 4], "float64", lod_level=int(ragged))
        branches = layers.IfElse(fluid.data("cond", [1, 1], "bool"))
        with branches.true_block():
            branches.output(branches.input(x))
        with branches.false_block():
            planes = layers.reshape(branches.input(x), [-1, 1, 2, 2])
            branches.output(layers.lod_reset(planes, x) if ragged else planes)
        return branches()

    main, startup, fetch = build(network)
    x = np.arange(12.0 if ragged else 4.0).reshape(-1, 4)
    fed = fluid.create_lod_tensor(x, [[len(x)]], fluid.CPUPlace()) if ragged else x
    (out,) = fluid.Executor().run(main, {"x": fed, "cond": np.array([[taken]])}, fetch, return_numpy=False)
    np.testing.assert_array_equal(np.array(out), x if taken else x.reshape(-1, 1, 2, 2))
    assert out.recursive_sequence_lengths() == ([[len(x)]] if ragged else [])


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((0, 1), "true_fn returns None while false_fn returns non-None"),
        ((2, 0), "false_fn returns None while true_fn returns non-None"),
        ((1, 2), "number of elements"),
    ],
)
def test_branches_that_return_different_structures_are_refused(counts: tuple[int, int], said: str) -> None:
    """In 1.8.5's words, which its own tests look for."""

    def returning(n: int) -> Any:
        values = [layers.fill_constant([2], "int32", 3) for _ in range(n)]
        return None if not n else values[0] if n == 1 else values

    holds = fluid.data("holds", [1], "bool")
    with pytest.raises(ValueError, match=f"Incompatible return values of true_fn and false_fn in cond: .*{said}"):
        layers.cond(holds, partial(returning, counts[0]), partial(returning, counts[1]))
