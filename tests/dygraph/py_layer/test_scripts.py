"""Scripts that say ``import paddle`` and use PyLayer on tensors outside a guard, under ``fluidjax run``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import paddle

SAVED_TENSOR = """
import paddle
from paddle.autograd import PyLayer
class cus_tanh(PyLayer):
    @staticmethod
    def forward(ctx, x, func1, func2=paddle.square):
        ctx.func = func2
        y = func1(x)
        ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, dy):
        y, = ctx.saved_tensor()
        grad = dy * (1 - ctx.func(y))
        return grad
data = paddle.randn([2, 3], dtype="float64")
data.stop_gradient = False
z = cus_tanh.apply(data, func1=paddle.tanh)
z.mean().backward()
print(data.grad)
"""

ORDER_OF_CALLS = """
import paddle
from paddle.autograd import PyLayer
class Tanh(PyLayer):
    @staticmethod
    def forward(ctx, x):
        print("in forward")
        return x+x
    @staticmethod
    def backward(ctx, grad):
        print("in backwarad")
        return grad
x = paddle.ones([1], dtype="float64")
x.stop_gradient = False
out = Tanh.apply(x)[0]
print("after apply")
out.backward()
print("after backward")
print(x.grad)
"""


def run(script: str, folder: Path) -> list[str]:
    """The lines that a script prints."""
    path = folder / "script.py"
    path.write_text(script)
    command = [sys.executable, "-m", "fluidjax.command.cli", "run", str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_order_of_calls(tmp_path) -> None:
    lines = run(ORDER_OF_CALLS, tmp_path)
    assert lines[:4] == ["in forward", "after apply", "in backwarad", "after backward"]
    assert "data: [1]" in lines[-1] or "data: [1]" in "".join(lines)


def test_saved_tensor(tmp_path) -> None:
    assert "shape: [2, 3]" in "".join(run(SAVED_TENSOR, tmp_path))


def test_tensors_are_eager_outside_a_guard() -> None:
    assert not fluid.in_dygraph_mode()
    x = paddle.ones([2, 3], dtype="float64")
    x.stop_gradient = False
    assert x.grad is None
    y = (paddle.square(x * 3) - 1)[0]
    y.mean().backward()
    np.testing.assert_allclose(y.numpy(), np.full(3, 8.0))
    np.testing.assert_allclose(x.grad.numpy(), [[6.0] * 3, [0.0] * 3])
    assert not fluid.in_dygraph_mode()


def test_drawn_numbers() -> None:
    x = paddle.randn([200], dtype="float64")
    assert x.numpy().dtype == np.float64
    assert abs(float(x.mean())) < 0.5


def test_functions_still_write_static_programs() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2], "float32")
        assert paddle.tanh(x).op.type == "tanh"


def test_there_is_no_more_of_paddle_2() -> None:
    with pytest.raises(AttributeError, match="no attribute 'einsum'"):
        paddle.einsum  # noqa: B018
