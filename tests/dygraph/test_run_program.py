"""The run_program op: ops of a static program as one op of an eager network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import core, framework
from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.mode import tracer_guard

RNG = np.random.default_rng(0)
IMAGES, WEIGHT = RNG.random((4, 1, 2, 3), np.float32), RNG.standard_normal((6, 5)).astype(np.float32)
BIAS, IDS, TABLE = RNG.random(5, np.float32), np.array([[1, 3, 0, 3]]), RNG.random((6, 2), np.float32)


def as_attr(name: str, value: np.ndarray) -> fluid.ParamAttr:
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(value))


def of_fc() -> tuple[Any, Any]:
    images = fluid.data("images", [None, 1, 2, 3])
    return images, fluid.layers.fc(images, 5, param_attr=as_attr("w", WEIGHT), bias_attr=as_attr("b", BIAS), act="relu")


def of_embedding() -> tuple[Any, Any]:
    ids = fluid.data("ids", [None, 4], "int64")
    return ids, fluid.layers.reduce_sum(
        fluid.embedding(ids, [6, 2], is_sparse=True, param_attr=as_attr("table", TABLE)), dim=-1
    )


def of_norm() -> tuple[Any, Any]:
    images = fluid.data("images", [None, 1, 2, 3])
    return images, fluid.layers.batch_norm(
        images, momentum=0.5, moving_mean_name="mean", moving_variance_name="variance", param_attr="s", bias_attr="o"
    )


def described(build: Any) -> tuple[Any, int, str]:
    """(a program's desc, the number of its forward ops, its result's name); the Program itself is gone."""
    program = fluid.Program()
    with tracer_guard(None), fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        given, result = build()
        count = program.desc.block(0).op_size()
        fluid.gradients([result], [given])
    return program.desc, count, result.name


def call(build: Any, given: dict[str, Any], params: dict[str, Any], **attrs: Any) -> tuple[Any, dict[str, Any]]:
    """(the result, the inputs by name), as eager variables; `params` get gradients."""
    desc, count, name = described(build)
    variables = {n: core.VarBase(value=v, name=n) for n, v in {**given, **params}.items()}
    for n, v in variables.items():
        v.stop_gradient = n not in params
    out = framework._varbase_creator(name=name)
    held = framework._varbase_creator(type=core.VarDesc.VarType.STEP_SCOPES, name="held", persistable=True)
    assert held.type == core.VarDesc.VarType.STEP_SCOPES
    held.value().set_scope(core.Scope())
    framework._dygraph_tracer().trace_op(
        type="run_program",
        inputs={"X": [variables[n] for n in given], "Params": [variables[n] for n in params]},
        outputs={"Out": [out], "OutScope": held},
        attrs={"global_block": desc.block(0), "start_op_index": 0, "end_op_index": count, **attrs},
    )
    return out, variables


@pytest.mark.parametrize("dtype", ["float32", "float64"])  # whatever the program declares
def test_value_and_gradients_of_fc(dtype: str) -> None:
    images, weight, bias = (v.astype(dtype) for v in (IMAGES, WEIGHT, BIAS))
    flat = images.reshape(4, 6)
    before = flat @ weight + bias
    with fluid.dygraph.guard():
        for _ in range(3):  # compiled, when it recurs
            out, inputs = call(of_fc, {"images": images}, {"w": weight, "b": bias})
            fluid.layers.reduce_sum(out * out).backward()
            start = 2 * np.maximum(before, 0)
            tolerance = {"rtol": 1e-5 if dtype == "float32" else 1e-13}
            np.testing.assert_allclose(out.numpy(), np.maximum(before, 0), **tolerance)
            np.testing.assert_allclose(inputs["w"].gradient(), flat.T @ start, **tolerance)
            np.testing.assert_allclose(inputs["b"].gradient(), start.sum(0), **tolerance)
            assert out.numpy().dtype == inputs["w"].gradient().dtype == dtype
            assert inputs["images"].gradient() is None


def test_sparse_gradient_of_a_table() -> None:
    with fluid.dygraph.guard():
        out, inputs = call(of_embedding, {"ids": IDS}, {"table": TABLE})
        np.testing.assert_allclose(out.numpy(), TABLE[IDS].sum(-1), rtol=1e-6)
        out.backward()
        values, rows = inputs["table"].gradient()
    assert rows.tolist() == IDS[0].tolist()
    np.testing.assert_array_equal(values, np.ones((4, 2), np.float32))


def test_state_that_the_ops_write() -> None:
    params = {n: np.full(1, v, np.float32) for n, v in {"s": 2, "o": 1, "mean": 0, "variance": 1}.items()}
    with fluid.dygraph.guard():
        out, inputs = call(of_norm, {"images": IMAGES}, params)
        hat = (IMAGES - IMAGES.mean()) / np.sqrt(IMAGES.var() + 1e-5)
        np.testing.assert_allclose(out.numpy(), 2 * hat + 1, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(inputs["mean"].numpy(), [IMAGES.mean() / 2], rtol=1e-5)
        fluid.layers.reduce_sum(out * out).backward()
        np.testing.assert_allclose(inputs["s"].gradient(), [2 * ((2 * hat + 1) * hat).sum()], rtol=1e-4)


def test_no_gradient_in_a_test() -> None:
    with fluid.dygraph.guard():
        out, inputs = call(of_fc, {"images": IMAGES}, {"w": WEIGHT, "b": BIAS}, is_test=True)
        out.backward()
        assert inputs["w"].gradient() is None


def test_refused() -> None:
    with fluid.dygraph.guard():
        with pytest.raises(EnforceNotMet, match=r"no \['global_block'"):
            framework._dygraph_tracer().trace_op("run_program", {}, {}, {})
        attrs = {"global_block": described(of_fc)[0].block(0), "start_op_index": 0, "end_op_index": 3}
        held = framework._varbase_creator()
        with pytest.raises(EnforceNotMet, match="OutScope\n.*holds a scope\n.*without\n.*STEP_SCOPES"):
            framework._dygraph_tracer().trace_op("run_program", {}, {"OutScope": held}, attrs)
        held.value().set_scope(core.Scope())
        with pytest.raises(EnforceNotMet, match=r"Out \['other'\]"):
            outputs = {"Out": [framework._varbase_creator(name="other")], "OutScope": held}
            framework._dygraph_tracer().trace_op("run_program", {}, outputs, attrs)
        out, inputs = call(of_fc, {"images": IMAGES}, {"w": WEIGHT, "b": BIAS})
        with pytest.raises(EnforceNotMet, match="gradients of its gradients"):
            fluid.dygraph.grad([out], [inputs["w"]], create_graph=True)
