"""Names of fluid.executor and fluid.framework that scripts of the old days take: what they say of a program's ops."""

import pytest

import fluidjax as fluid
from fluidjax.executor import dtype_is_compatible_with, has_feed_operators, has_fetch_operators
from fluidjax.files.inference import deployable
from fluidjax.framework import wrap_decorator


def carried():
    """(A program with feed and fetch ops, its two outputs)."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [2])
        outs = [fluid.layers.relu(x), fluid.layers.tanh(x)]
    return deployable(program, ["x"], [out.name for out in outs]), outs


def test_element_types():
    assert dtype_is_compatible_with("float32", fluid.core.VarDesc.VarType.FP32)
    assert not dtype_is_compatible_with("float32", "float64")


def test_feed_and_fetch_ops_of_a_run():
    program, outs = carried()
    block = program.global_block()
    assert has_feed_operators(block, {"x": None}, "feed") and has_fetch_operators(block, outs, "fetch")
    assert not has_feed_operators(fluid.Program().global_block(), {"x": None}, "feed")
    assert not has_fetch_operators(fluid.Program().global_block(), outs, "fetch")
    with pytest.raises(ValueError, match="do not match 'feed_targets'"):
        has_feed_operators(block, {"y": None}, "feed")
    with pytest.raises(ValueError, match="do not match 'fetch_targets'"):
        has_fetch_operators(block, outs[:1], "fetch")
    with pytest.raises(AssertionError, match="the order"):
        has_fetch_operators(block, outs[::-1], "fetch")
    with pytest.raises(AssertionError, match="expected other"):
        has_feed_operators(block, {"x": None}, "other")


def test_decorators_keep_signatures():
    @wrap_decorator(lambda function: lambda *args: function(*args) + 1)
    def add(a, b):
        return a + b

    assert add(1, 2) == 4
    with pytest.raises(TypeError):
        add(1)
