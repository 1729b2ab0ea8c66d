"""Gradients of ops of Paddle 2 that no recording has, against ``jax.vjp`` and finite differences."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax import testing
from fluidjax.testing import Case


def normal(*shape: int):
    return lambda rng: rng.standard_normal(shape)


def positive(size: int):
    def draw(rng: np.random.Generator) -> np.ndarray:
        a = rng.standard_normal((size, size))
        return a @ a.T + size * np.eye(size)

    return draw


def triangle(size: int):
    return lambda rng: np.linalg.cholesky(positive(size)(rng))


INDEX = np.array([[0, 2, 1], [1, 0, 2]])
EDGES = {"Src_index": np.array([0, 2, 1, 1]), "Dst_index": np.array([1, 0, 2, 0])}
CASES = [
    Case("as_strided", {"input": normal(3, 4)}, {"dims": [3, 3], "stride": [2, 1], "offset": 8}),  # windows overlap
    Case("c_embedding", {"W": normal(4, 2), "Ids": np.array([1, 3, 3, 6])}, {"start_index": 2}),
    Case("cholesky", {"X": positive(3)}, {"upper": False}),
    Case("cholesky_solve", {"X": normal(3, 2), "Y": triangle(3)}),
    Case("determinant", {"Input": positive(3)}),
    Case("diag_v2", {"X": normal(3)}, {"offset": 1, "padding_value": 2.0}),
    Case(
        "einsum",
        {"Operands": [normal(2, 3), normal(3, 4)]},
        {"equation": "ij,jk->ki"},
        counts={"InnerCache": 2, "XShape": 2},
    ),
    Case("fused_softmax_mask", {"X": normal(1, 2, 3, 4), "Mask": normal(1, 1, 3, 4)}),
    Case("fused_softmax_mask_upper_triangle", {"X": normal(1, 2, 3, 3)}),
    Case("fused_rotary_position_embedding", dict.fromkeys("qkv", normal(2, 3, 2, 4))),
    Case("graph_send_ue_recv", {"X": normal(3, 2), "Y": normal(4, 2), **EDGES}),
    Case("graph_send_uv", {**{k.lower(): v for k, v in EDGES.items()}, "x": normal(3, 2), "y": normal(3, 2)}),
    Case("fill_any", {"X": normal(2, 3)}, {"value_float": 2.0}),
    Case("fill_diagonal", {"X": normal(4, 3)}, {"value": 2.0}),
    Case("index_select_strided", {"x": normal(3, 4)}, {"index": 2, "axis": 1}),
    Case("index_put", {"x": normal(3, 4), "indices": [np.array([0, 2])], "value": normal(2, 4)}),
    Case(
        "index_put",
        {"x": normal(3, 4), "indices": [np.array([1, 1])], "value": normal(2, 4)},
        {"accumulate": True},
        "added",
    ),
    Case("matrix_power", {"X": positive(3)}, {"n": 3}),
    Case("mode", {"X": normal(2, 3)}),  # all are different, so it is the smallest
    Case("npu_identity", {"x": normal(2, 3)}),
    Case(
        "put_along_axis",
        {"Input": normal(2, 3), "Index": INDEX, "Value": normal(2, 3)},
        {"Axis": 1, "Reduce": "assign"},
    ),
    Case(
        "put_along_axis",
        {"Input": normal(2, 3), "Index": INDEX, "Value": normal(2, 3)},
        {"Axis": 1, "Reduce": "add"},
        "added",
    ),
    Case("share_data", {"X": normal(2, 3)}),
    Case("solve", {"X": positive(3), "Y": normal(3, 2)}),
    Case("tensor_unfold", {"input": normal(2, 5)}, {"axis": 1, "size": 3, "step": 1}),
    Case("triangular_solve", {"X": positive(3), "Y": normal(3, 2)}, {"upper": False}),
    Case("trunc", {"X": normal(2, 3)}),
    Case("view_shape", {"input": normal(2, 6)}, {"dims": [3, -1]}),
]

STRAIGHT_THROUGH = ("fake_quantize_dequantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max")
PROVEN = {case.op for case in CASES} | set(STRAIGHT_THROUGH) | {"gumbel_softmax", "dropout_nd"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradient(case, rng):
    testing.check_gradient(case, rng)


@pytest.mark.parametrize("type", STRAIGHT_THROUGH)
def test_quantisation_hands_its_gradient_through(type: str, rng: np.random.Generator) -> None:
    """As Paddle declares it: the steps themselves have no derivative but zero."""
    x, d_out = (rng.standard_normal((3, 4)).astype(np.float32) for _ in range(2))
    out, scale = lowering.get_op(type)(x)
    assert np.abs(np.asarray(out) - x).max() <= 0.5001 * np.max(scale) / 127
    np.testing.assert_array_equal(lowering.get_op(type + "_grad")(d_out), d_out)


@pytest.mark.parametrize("way", ["upscale_in_train", "downgrade_in_infer"])
def test_what_is_dropped_along_axes_has_no_gradient(way: str, rng: np.random.Generator) -> None:
    x, d_out = (rng.uniform(1, 2, (5, 4, 3)).astype(np.float32) for _ in range(2))
    attrs = {"dropout_prob": 0.5, "dropout_implementation": way, "axis": [1]}
    out, mask = lowering.get_op("dropout_nd")(x, key=jax.random.key(3), **attrs)
    assert mask.shape == (1, 4, 1) and set(np.unique(mask)) == {0, 1}
    factor = np.asarray(out) / x
    np.testing.assert_allclose(factor, np.broadcast_to(factor[:1, :, :1], x.shape), rtol=1e-6)
    given = {name: value for name, value in attrs.items() if name != "axis"}
    np.testing.assert_allclose(lowering.get_op("dropout_nd_grad")(mask, d_out, **given), factor * d_out, rtol=1e-6)


@pytest.mark.parametrize("hard", [False, True])
def test_a_drawn_softmax_is_differentiated_by_what_was_drawn(hard: bool, rng: np.random.Generator) -> None:
    x, d_out = (rng.standard_normal((3, 4)).astype(np.float32) for _ in range(2))
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        given, weights = fluid.data("x", [3, 4]), fluid.data("weights", [3, 4])
        given.stop_gradient = False
        block = given.block
        out = block.create_var(name="out", dtype="float32", shape=[3, 4])
        attrs = {"temperature": 0.5, "hard": hard}
        block.append_op(type="gumbel_softmax", inputs={"X": given}, outputs={"Out": out}, attrs=attrs)
        (gradient,) = fluid.gradients(fluid.layers.reduce_sum(out * weights), given)
        drawn, found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": x, "weights": d_out}, fetch_list=[out, gradient])
    if hard:
        assert set(np.unique(drawn)) == {0, 1}
        np.testing.assert_array_equal(found, 0)
        return
    noisy = 0.5 * np.log(drawn)  # x and what was added to it, but for a constant in each row
    (expected,) = jax.vjp(lambda v: jax.nn.softmax(v / 0.5), noisy)[1](d_out)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
