"""Static mixed precision: which ops are cast, training, and the loss scaling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.base.enums import VarType
from fluidjax.contrib import mixed_precision
from tests.optimizer.train import Data, Run


def decorated(dtype: str = "float16", **options: Any) -> Any:
    def build(loss: Any) -> Any:
        lists = mixed_precision.AutoMixedPrecisionLists()
        lists.dtype = dtype
        made = mixed_precision.decorate(fluid.optimizer.SGD(0.1), lists, **options)
        made.minimize(loss)
        return made

    return build


def test_white_ops_read_casts_and_black_ops_cast_back(rng: np.random.Generator) -> None:
    run = Run(Data(rng), decorated(init_loss_scaling=8.0, use_dynamic_loss_scaling=False))
    ops = run.main.global_block().ops
    mul = next(op for op in ops if op.type == "mul")
    assert mul.input("Y") == ["w.cast_fp16"]
    assert run.main.global_block().var(mul.output("Out")[0]).dtype == VarType.FP16
    square = next(op for op in ops if op.type == "square")
    assert square.input("X")[0].endswith(".cast_fp32")
    assert run.main.global_block().var("w").dtype == VarType.FP32
    writer = next(op for op in ops if "w.cast_fp16@GRAD" in op.output_arg_names)
    assert writer.attr("op_role_var") == ["w", "w.cast_fp16@GRAD"]
    cast = next(op for op in ops if op.output_arg_names == ["w@GRAD"])
    assert (cast.type, cast.attr("op_role"), cast.has_attr("op_role_var")) == ("cast", 2, False)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_training_follows_float32(rng: np.random.Generator, dtype: str) -> None:
    data = Data(rng)
    run = Run(data, decorated(dtype, init_loss_scaling=128.0))
    w, e = data.w, data.e
    for step in range(3):
        run.step(step)
        grads = data.gradients(step, w, e)
        w, e = w - 0.1 * grads[0], e - 0.1 * grads[1]
    assert run["w"].dtype == np.float32
    tolerance = 1e-4 if dtype == "float16" else 1e-3  # of steps of about 1e-2
    np.testing.assert_allclose(run["w"], w, atol=tolerance)
    assert np.abs(run["w"] - data.w).max() > 5 * tolerance


def test_scaling_rises_and_falls(rng: np.random.Generator) -> None:
    data = Data(rng)
    options = {"incr_every_n_steps": 2, "decr_every_n_nan_or_inf": 1, "incr_ratio": 4.0, "decr_ratio": 0.5}
    run = Run(data, decorated(init_loss_scaling=16.0, **options))
    scaling = run.made.get_loss_scaling().name
    seen = []
    for step in range(3):
        run.step(step)
        seen.append(float(run[scaling][0]))
    assert seen == [16.0, 16.0, 64.0]  # as in Fluid, after more than incr_every_n_steps good steps
    before = run["w"]
    data.x[3] = 1e30  # overflows float16
    run.step(3)
    assert float(run[scaling][0]) == 64.0
    run.step(3)
    assert float(run[scaling][0]) == 32.0
    np.testing.assert_array_equal(run["w"], before)
    assert int(run["num_good_steps_0"][0]) == 0


def test_scaling_stays_at_least_one(rng: np.random.Generator) -> None:
    data = Data(rng)
    data.x[0] = 1e30
    run = Run(data, decorated(init_loss_scaling=1.0, decr_every_n_nan_or_inf=1))
    run.step(0)
    assert float(run[run.made.get_loss_scaling().name][0]) == 1.0


def test_lists() -> None:
    lists = mixed_precision.AutoMixedPrecisionLists(custom_white_list=["tanh"], custom_black_list=["conv2d"])
    assert "tanh" in lists.white_list
    assert "tanh" not in lists.gray_list
    assert "conv2d" in lists.black_list
    assert "conv2d" not in lists.white_list
    with pytest.raises(ValueError, match="mul in both custom lists"):
        mixed_precision.AutoMixedPrecisionLists(["mul"], ["mul"])
    with pytest.raises(ValueError, match="no 16-bit float"):
        lists.dtype = "float64"


def test_ops_of_black_variables_stay_in_float32(rng: np.random.Generator) -> None:
    def build(loss: Any) -> None:
        lists = mixed_precision.AutoMixedPrecisionLists(custom_black_varnames=["w"])
        mixed_precision.decorate(fluid.optimizer.SGD(0.1), lists, 8.0, use_dynamic_loss_scaling=False).minimize(loss)

    run = Run(Data(rng), build)
    mul = next(op for op in run.main.global_block().ops if op.type == "mul")
    assert mul.input("Y") == ["w"]
