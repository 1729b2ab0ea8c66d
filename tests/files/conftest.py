"""A small trained-looking program and its values, for tests of files."""

import numpy as np
import pytest

import fluidjax as fluid

VALUES = {
    "w": np.arange(6, dtype="f4").reshape(3, 2),
    "b": np.array([0.5, -0.5], "f4"),
    "moment": np.full((3, 2), 0.25, "f4"),
    "count": np.array([7], "i8"),
}


def build():
    """out = x w + b, with two variables more that an optimizer would have."""
    program = fluid.Program()
    block = program.global_block()
    for name in ("w", "b"):
        block.create_parameter(name=name, shape=VALUES[name].shape, dtype="float32")
    block.create_var(name="moment", shape=[3, 2], dtype="float32", persistable=True)
    block.create_var(name="count", shape=[1], dtype="int64", persistable=True)
    with fluid.program_guard(program):
        x = fluid.data("x", [None, 3])
    for name in ("product", "out"):
        block.create_var(name=name, shape=[-1, 2], dtype="float32")
    block.append_op(type="mul", inputs={"X": x, "Y": "w"}, outputs={"Out": "product"})
    block.append_op(
        type="elementwise_add", inputs={"X": "product", "Y": "b"}, outputs={"Out": "out"}, attrs={"axis": 1}
    )
    return program


@pytest.fixture
def program():
    return build()


@pytest.fixture
def scope():
    """A scope with the values, which is the global one during the test."""
    scope = fluid.Scope()
    for name, value in VALUES.items():
        scope.var(name).get_tensor().set(value, fluid.CPUPlace())
    with fluid.scope_guard(scope):
        yield scope


def snapshot(scope):
    """All values of a scope, as bytes that compare."""
    found = {}
    for name in scope.local_var_names():
        holder = scope.find_var(name)._holder
        found[name] = None if holder is None else (np.array(holder).tobytes(), str(holder._value.dtype), holder.lod())
    return found
