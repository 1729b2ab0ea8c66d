"""save_dygraph and load_dygraph: Paddle's bytes, and training that goes on as if it had not stopped.

``saved`` holds what Paddle 1.8.5 wrote for the networks below.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

dg = fluid.dygraph
SAVED = Path(__file__).parent / "saved"


class Net(dg.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc = dg.Linear(2, 3, param_attr=fluid.ParamAttr(name="z"))
        self.bn = dg.BatchNorm(3)
        self.w = self.create_parameter([3, 1])
        self.tied = self.fc.weight

    def forward(self, x: Any) -> Any:
        return fluid.layers.matmul(self.bn(self.fc(x)), self.w)


def noam() -> tuple[Any, Any]:
    net = Net()
    return net, fluid.optimizer.Adam(dg.NoamDecay(8, 4), parameter_list=net.parameters())


def plateau() -> tuple[Any, Any]:
    net = Net()
    return net, fluid.optimizer.Momentum(dg.ReduceLROnPlateau(0.1), 0.9, parameter_list=net.parameters())


def epochs() -> tuple[Any, Any]:
    net = dg.Linear(1, 1)
    return net, fluid.optimizer.SGD(dg.StepDecay(0.1, 2), parameter_list=net.parameters())


def by_function() -> tuple[Any, Any]:
    net = dg.Linear(1, 1)
    return net, fluid.optimizer.SGD(dg.LambdaDecay(0.1, lambda n: 0.5**n), parameter_list=net.parameters())


MADE = {"noam": noam, "plateau": plateau, "epochs": epochs, "lambda": by_function}

AGAIN = {"noam": "noam_again"}  # what Paddle writes after it has read `noam`: a step that was loaded is an int32


def step(net: Any, opt: Any) -> float:
    x = dg.to_variable(np.arange(8, dtype="float32").reshape(4, 2)[:, : net.parameters()[0].shape[0]])
    loss = fluid.layers.mean(net(x))
    loss.backward()
    opt.minimize(loss)
    net.clear_gradients()
    return float(loss.numpy())


@pytest.mark.parametrize("name", MADE)
def test_the_bytes_are_those_of_paddle(name: str, tmp_path: Path) -> None:
    with dg.guard():
        net, opt = MADE[name]()
        step(net, opt)
        parameters, state = fluid.load_dygraph(str(SAVED / name))
        net.set_dict(parameters)
        opt.set_dict(state)
        fluid.save_dygraph(net.state_dict(), str(tmp_path / "again"))
        fluid.save_dygraph(opt.state_dict(), str(tmp_path / "again"))
    state_name = AGAIN.get(name, name)
    assert (tmp_path / "again.pdparams").read_bytes() == (SAVED / f"{name}.pdparams").read_bytes()
    assert (tmp_path / "again.pdopt").read_bytes() == (SAVED / f"{state_name}.pdopt").read_bytes()


@pytest.mark.parametrize("make", [noam, plateau])
def test_training_goes_on(make: Callable[[], Any], tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "model")
    with dg.guard():
        net, opt = make()
        step(net, opt)
        fluid.save_dygraph(net.state_dict(), path)
        fluid.save_dygraph(opt.state_dict(), path)
        expected = [step(net, opt) for _ in range(3)]
    assert sorted(os.listdir(tmp_path / "deep")) == ["model.pdopt", "model.pdparams"]
    with dg.guard():
        net, opt = make()
        parameters, state = fluid.load_dygraph(path)
        net.set_dict(parameters)
        opt.set_dict(state)  # before the first minimize: for the accumulators to come
        assert [step(net, opt) for _ in range(3)] == expected


def test_tables_and_suffixes() -> None:
    with dg.guard():
        for end in ("", ".pdparams", ".pdopt"):
            parameters, state = fluid.load_dygraph(str(SAVED / "noam") + end)
            assert "StructuredToParameterName@@" not in parameters and "StructuredToParameterName@@" in state
        parameters, _ = fluid.load_dygraph(str(SAVED / "noam"), keep_name_table=True)
        assert parameters["StructuredToParameterName@@"]["tied"] == "z"
        with pytest.warns(UserWarning, match="StructuredToParameterName@@"):
            Net().set_dict(parameters)


def test_what_cannot_be_saved_or_loaded_is_said(tmp_path: Path) -> None:
    with dg.guard():
        net = dg.Linear(1, 1)
        for state, path in (({}, "x"), (net.state_dict(), "")):
            with pytest.raises(AssertionError):
                fluid.save_dygraph(state, str(tmp_path) + "/" + path)
        fluid.save_dygraph({"x": np.ones(3)}, str(tmp_path / "arrays"))  # no parameter first: an optimizer's
        with pytest.raises(RuntimeError, match="arrays.pdparams"):
            fluid.load_dygraph(str(tmp_path / "arrays"))
    assert os.listdir(tmp_path) == ["arrays.pdopt"]
    for call in (lambda: fluid.save_dygraph(net.state_dict(), "x"), lambda: fluid.load_dygraph("x")):
        with pytest.raises(AssertionError, match="guard"):
            call()
