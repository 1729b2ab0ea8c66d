"""What Fluid has beside its converter: parameters, feeds and numbers of Python as variables of a program."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from tests.spec.signatures import check

dg = fluid.dygraph
to_static = dg.dygraph_to_static
NAMES = [
    "base.param_guard", "base.program_desc_tracing_guard", "jit.create_program_from_desc", "jit.extract_vars",
    "dygraph_to_static.convert_to_static", "dygraph_to_static.create_static_variable_gast_node",
    "dygraph_to_static.data_layer_not_check", "dygraph_to_static.to_static_variable_gast_node",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_takes_what_it_takes_in_fluid(name: str) -> None:
    assert check(f"paddle.fluid.dygraph.{name}").state == "equal"


def test_eager_parameters_stand_for_those_of_a_program() -> None:
    with dg.guard():
        layer = dg.Linear(2, 3)
        weight = layer.weight
        with dg.base.param_guard(layer._parameters):
            assert layer.weight is weight
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        with dg.base.param_guard(layer._parameters):
            found = layer.weight
            assert type(found) is fluid.framework.Parameter and (found.name, found.shape) == (weight.name, (2, 3))
            out = layer(fluid.data("x", [None, 2]))
            assert out.shape == (-1, 3)
        assert layer.weight is weight
        assert [p.name for p in fluid.default_main_program().all_parameters()] == [weight.name, layer.bias.name]


def test_parts_of_a_traced_layer_may_be_left_out() -> None:
    class Net(dg.Layer):
        def forward(self, x: Any) -> Any:
            with dg.base.program_desc_tracing_guard(False):
                half = x / 2.0
            return x * 3.0 + half.detach()

    with dg.base.program_desc_tracing_guard(True), dg.guard():
        x = dg.to_variable(np.ones(2, "float32"))
        out, traced = dg.TracedLayer.trace(Net(), [x])
        assert [op.type for op in traced.program.global_block().ops] == ["scale", "elementwise_add"]
        assert out.numpy().tolist() == [3.5, 3.5] and traced([x])[0].tolist() == [3.5, 3.5]


def test_feeds_that_are_not_checked_and_numbers() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = to_static.data_layer_not_check("x", [None], "float32")
        y = fluid.layers.scale(x, 2.0)
        three = to_static.variable_trans_func.to_static_variable(3)
        assert to_static.variable_trans_func.to_static_variable("text") == "text"
    exe = fluid.Executor(fluid.CPUPlace())
    found = exe.run(main, feed={"x": np.ones(4, "float32")}, fetch_list=[y, three])
    assert found[0].tolist() == [2] * 4 and found[1].tolist() == [3] and found[1].dtype == np.int64
    again = dg.jit.create_program_from_desc(main.desc)
    assert again is not main and [op.type for op in again.global_block().ops] == ["scale", "fill_constant"]


@pytest.mark.parametrize("make", [to_static.create_static_variable_gast_node, to_static.to_static_variable_gast_node])
def test_statements_make_variables(make: Any) -> None:
    names: dict[str, Any] = {"fluidjax": fluid, "number": 1.5}
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        exec(compile(ast.Module([make("number")], []), "<test>", "exec"), names)
    assert isinstance(names["number"], fluid.Variable)


def test_functions_are_converted_once() -> None:
    def double(x: Any) -> Any:
        if fluid.layers.mean(x) > 0.0:
            x = x * 2.0
        return x

    assert to_static.convert_to_static(double) is to_static.convert_to_static(double) is not double
    with dg.guard():
        x, y = dg.Layer().create_parameter([1]), dg.to_variable(np.ones(1, "float32"))
        assert dg.jit.extract_vars([x, (y, 3)]) == [x, y] and dg.jit.extract_vars(y) == [y]
