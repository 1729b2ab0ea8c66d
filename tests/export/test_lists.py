"""Lists that loops fill, joined along any axis, as functions and files: Paddle 2 makes them of Python's lists."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import fluidjax as fluid
import fluidjax.paddle as paddle
from fluidjax.export import ExportError, to_jax
from fluidjax.export.files import Model

ROWS = np.arange(6, dtype="float32").reshape(2, 3)


def filled_by_a_loop(bound: fluid.Variable | None, stacked: bool) -> tuple[fluid.Variable, fluid.Variable]:
    """A list of what at most 7 steps append, joined along axis 1, and the sizes; a bound on a sum may end them."""
    x, limit = fluid.data("x", [2, 3]), fluid.layers.fill_constant([1], "int64", 7)
    i, total = fluid.layers.fill_constant([1], "int64", 0), fluid.layers.fill_constant([1], "float32", 0.0)
    filled, more = fluid.layers.create_array("float32"), fluid.layers.less_than(i, limit)
    loop = fluid.layers.While(more)
    with loop.block():
        fluid.layers.assign(total + fluid.layers.reduce_sum(x), total)
        row = x * fluid.layers.cast(i + 1, "float32")
        row = row if stacked else fluid.layers.unsqueeze(row, [1])
        fluid.layers.array_write(row, fluid.layers.array_length(filled), filled)
        fluid.layers.increment(i)
        fluid.layers.less_than(i, limit, cond=more)
        if bound is not None:
            fluid.layers.logical_and(more, fluid.layers.less_than(total, bound), out=more)
    return fluid.layers.tensor_array_to_tensor(filled, axis=1, use_stack=stacked)


def executor() -> fluid.Executor:
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe


def test_a_list_is_as_long_as_its_loop_has_steps():
    """Converted loops append by the list's own length."""
    joined, sizes = filled_by_a_loop(None, stacked=False)
    function, parameters = to_jax(fluid.default_main_program(), ["x"], [joined, sizes])
    found = jax.jit(function)(parameters, [ROWS])
    np.testing.assert_array_equal(found[0], np.stack([ROWS * (i + 1) for i in range(7)], 1))
    np.testing.assert_array_equal(found[1], [1] * 7)


@pytest.mark.parametrize("stacked", [True, False])
def test_values_end_the_loop(stacked):
    """Layers take of the list what there is; fetched, it ends in zeros."""
    joined, sizes = filled_by_a_loop(fluid.data("bound", [1]), stacked)
    through = fluid.layers.fc(joined, 4, num_flatten_dims=2, act="softmax")
    fetches = [joined, sizes, through, fluid.layers.reduce_mean(through, dim=[1])]
    exe = executor()
    function, parameters = to_jax(fluid.default_main_program(), ["x", "bound"], fetches)
    run = jax.jit(function)
    for bound, steps in ((40.0, 3), (1e6, 7), (0.0, 1)):
        given = {"x": ROWS, "bound": np.array([bound], "float32")}
        wanted = exe.run(feed=given, fetch_list=fetches)
        found = run(parameters, given)
        assert wanted[0].shape == (2, steps, 3) and int(found[1].nrows) == steps
        np.testing.assert_array_equal(found[1].data[:steps], wanted[1])
        for got, want in ((found[0], wanted[0]), (found[2], wanted[2])):
            np.testing.assert_allclose(got[:, :steps], want, rtol=1e-6, atol=1e-7)
            assert not np.any(got[:, steps:])
        np.testing.assert_allclose(found[3], wanted[3], rtol=1e-6)


def appended(type: str, x: fluid.Variable, *outs: str, shape: list[int], slots=None, **attrs) -> fluid.Variable:
    """The first result of an op that Fluid 1.8 has no layer for."""
    block = fluid.default_main_program().global_block()
    made = {slot: block.create_var(dtype="float32", shape=shape) for slot in ("Out", *outs)}
    block.append_op(type, {"X": x, **(slots or {})}, made, attrs)
    return made["Out"]


def test_layers_of_paddle_2_take_such_a_list():
    """Its table heads join what their loop made and put it through a Linear layer; what may follow one is here too."""
    joined, _ = filled_by_a_loop(fluid.data("bound", [1]), stacked=False)
    weights = fluid.layers.create_parameter([4, 3], "float32")
    linear = appended("matmul_v2", joined, shape=[2, -1, 4], slots={"Y": weights}, trans_y=True)
    smooth = appended("mish", appended("silu", linear, shape=[2, -1, 4]), shape=[2, -1, 4])
    best = appended("top_k_v2", smooth, "Indices", shape=[2, -1, 2], k=2)
    twice = appended("tile", appended("log_softmax", best, shape=[2, -1, 2]), shape=[2, -1, 4], repeat_times=[1, 1, 2])
    paired = appended("unsqueeze2", twice, "XShape", shape=[2, 1, -1, 4], axes=[1])
    flat = appended("flatten_contiguous_range", paired, "XShape", shape=[2, -1, 4], start_axis=1, stop_axis=2)
    inner = appended("matmul_v2", flat, shape=[2, 4, 4], slots={"Y": flat}, trans_x=True)
    exe, fetches = executor(), [linear, flat, inner]
    given = {"x": ROWS, "bound": np.array([40], "float32")}
    function, parameters = to_jax(fluid.default_main_program(), ["x", "bound"], fetches)
    wanted = exe.run(feed=given, fetch_list=fetches)
    found = jax.jit(function)(parameters, given)
    for got, want in zip(found[:2], wanted, strict=False):
        assert want.shape == (2, 3, 4) and not np.any(got[:, 3:])
        np.testing.assert_allclose(got[:, :3], want, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[2], wanted[2], rtol=1e-5)


@pytest.mark.parametrize("to", ["c", "jax"])
def test_files_of_such_a_list(tmp_path, to):
    """Compared with the Executor before they are there."""
    joined, _ = filled_by_a_loop(fluid.data("bound", [1]), stacked=True)
    out = fluid.layers.fc(joined, 4, num_flatten_dims=2, act="sigmoid")
    fluid.io.save_inference_model(str(tmp_path / "m"), ["x", "bound"], [out], executor())
    assert Model(tmp_path / "m", None, None).write(str(tmp_path / to), to)


def test_such_a_list_is_turned_round():
    """From its last step on; what is not used follows, as zeros."""
    joined, _ = filled_by_a_loop(fluid.data("bound", [1]), stacked=True)
    turned = fluid.layers.reverse(joined, axis=1)
    function, parameters = to_jax(fluid.default_main_program(), ["x", "bound"], [joined, turned])
    found, back = function(parameters, [ROWS, np.full(1, 40, "float32")])
    np.testing.assert_array_equal(back[:, :3], found[:, 2::-1])
    assert not np.any(back[:, 3:])


def test_what_does_not_leave_positions_alone_says_so():
    """An op without a rule for spare room along an axis is named."""
    joined, _ = filled_by_a_loop(fluid.data("bound", [1]), stacked=True)
    out = paddle.roll(joined, 1, dims=1)
    function, parameters = to_jax(fluid.default_main_program(), ["x", "bound"], [out])
    with pytest.raises(ExportError, match="op roll"):
        function(parameters, [ROWS, np.ones(1, "float32")])
