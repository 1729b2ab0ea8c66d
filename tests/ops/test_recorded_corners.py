"""Corners of single ops as Paddle 1.8.5 has them: found in recordings, kept small here."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers

SELECTED_ROWS = fluid.core.VarDesc.VarType.SELECTED_ROWS
FP32, FP64 = 5, 6


def run_op(type, feed, attrs, out_dtype, fetch_gradient=False):
    """One op on fed values; (Out,) or (Out, X@GRAD of the sum of Out)."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.scope_guard(fluid.Scope()):
        data = fluid.data("x", list(feed.shape), str(feed.dtype))
        data.stop_gradient = False
        out = main.global_block().create_var(name="out", dtype=out_dtype)
        main.global_block().append_op(type, inputs={"X": data}, outputs={"Out": out}, attrs=attrs)
        fetch = [out, *(fluid.gradients([out], [data]) if fetch_gradient else [])]
        return fluid.Executor(fluid.CPUPlace()).run(main, feed={"x": feed}, fetch_list=fetch)


# --- interpolation of integers ------------------------------------------------------------------------------------


def taps(size, out, align_corners):
    """(lower row, upper row, weight of the lower, weight of the upper), in float32."""
    ratio = np.float32((size - 1) / (out - 1)) if align_corners else np.float32(size / out)
    position = ratio * np.arange(out, dtype=np.float32)
    low = position.astype(int)
    upper = position - low.astype(np.float32)
    return [(low, np.float32(1) - upper), (np.minimum(low + 1, size - 1), upper)]


def resized(x, sizes, align_corners):
    """Every product and every sum rounded to float32, and the result cut off."""
    axes = [taps(n, out, align_corners) for n, out in zip(x.shape[2:], sizes, strict=True)]
    order = axes if len(axes) == 3 else axes[::-1]
    total = np.zeros((), np.float32)
    for chosen in product(*order):
        chosen = chosen if len(axes) == 3 else chosen[::-1]
        term = x.astype(np.float32)
        for axis, (row, weight) in enumerate(chosen, 2):
            term = term.take(row, axis) * weight.reshape([-1 if d == axis else 1 for d in range(x.ndim)])
        total = total + term
    return total.astype(x.dtype)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("sizes", [(16, 15), (3, 10, 13)], ids=["bilinear", "trilinear"])
def test_integers_are_resized_to_the_last_digit(rng, sizes, align_corners):
    """Multiplying and adding in one step gives another digit now and then."""
    x = rng.integers(0, 256, (1, 2, *(3, 4, 5)[-len(sizes) :])).astype("uint8")
    kind = "bilinear" if len(sizes) == 2 else "trilinear"
    attrs = dict(zip(("out_d", "out_h", "out_w")[-len(sizes) :], sizes, strict=True))
    attrs |= {"interp_method": kind, "align_corners": align_corners, "align_mode": 1}
    (got,) = run_op(kind + "_interp", x, attrs, "uint8")
    np.testing.assert_array_equal(got, resized(x, sizes, align_corners))


# --- reductions that cast -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["reduce_sum", "reduce_mean"])
@pytest.mark.parametrize(
    ("dtype", "in_dtype", "out_dtype", "wanted"),
    [
        ("float32", -1, -1, "float32"),
        ("float32", FP32, FP64, "float32"),
        ("float32", -1, FP64, "float64"),
        ("float64", FP32, FP64, "float32"),
        ("float64", FP64, FP32, "float64"),
    ],
)
def test_the_gradient_of_a_cast_reduction_has_the_type_in_dtype(type, dtype, in_dtype, out_dtype, wanted):
    x = np.ones((2, 3), dtype)
    declared = {FP32: "float32", FP64: "float64", -1: dtype}[out_dtype]
    out, grad = run_op(type, x, {"dim": [0], "in_dtype": in_dtype, "out_dtype": out_dtype}, declared, True)
    assert out.dtype == declared
    assert grad.dtype == wanted
    assert (grad == (1 if type == "reduce_sum" else 0.5)).all()


# --- sparse results -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["uniform_random", "fill_constant"])
def test_values_made_sparse_are_whole_and_have_no_rows(type):
    main = fluid.Program()
    with fluid.scope_guard(fluid.Scope()):
        block = main.global_block()
        out = block.create_var(name="out", dtype="float32", type=SELECTED_ROWS, shape=[4, 3], persistable=True)
        attrs = {"shape": [4, 3], "dtype": FP32}
        attrs |= {"min": 1.0, "max": 2.0} if type == "uniform_random" else {"value": 1.5}
        block.append_op(type, outputs={"Out": out}, attrs=attrs)
        fluid.Executor(fluid.CPUPlace()).run(main)
        made = fluid.global_scope().find_var("out").get_selected_rows()
        values = np.array(made.get_tensor())
    assert (made.rows(), made.height(), values.shape) == ([], 4, (4, 3))
    assert ((values >= 1) & (values < 2)).all()


# --- chains -------------------------------------------------------------------------------------------------------


def test_alpha_of_padded_chains_is_zero_behind_their_ends(rng):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x, y = fluid.data("x", [2, 4, 3]), fluid.data("y", [2, 4], "int64")
        length = fluid.data("length", [2], "int64")
        layers.linear_chain_crf(x, y, length=length)
        op = x.block.ops[-1]
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        feed = {"x": rng.normal(size=(2, 4, 3)).astype("float32"), "y": np.ones((2, 4), "int64")}
        (alpha,) = exe.run(feed=feed | {"length": np.array([2, 4])}, fetch_list=[op.output("Alpha")[0]])
    assert not alpha[0, 2:].any()
    np.testing.assert_allclose(np.delete(alpha.reshape(8, 3), [2, 3], 0).sum(axis=1), 1, rtol=1e-6)
