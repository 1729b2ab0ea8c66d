"""Fluid's classes for syntax trees: kinds of values, names that loops carry, trees as source and as functions."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.dygraph import dygraph_to_static as to_static
from fluidjax.dygraph.dygraph_to_static.utils import ast_to_func, ast_to_source_code, get_attribute_full_name
from fluidjax.dygraph.dygraph_to_static.variable_trans_func import create_fill_constant_node
from tests.spec.signatures import check

Type = to_static.NodeVarType
CLASSES = ["AstNodeWrapper", "DygraphToStaticAst", "LoopTransformer", "NameVisitor", "NodeVarType",
           "StaticAnalysisVisitor"]  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_takes_what_it_takes_in_fluid(name: str) -> None:
    assert check(f"paddle.fluid.dygraph.dygraph_to_static.{name}").state == "equal"


def tree_of(function: Any) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def numbers(x, y=1.0):
    a = 1
    b = a * y
    c = a < b
    d = "text"
    e = None
    f = e + 1
    g = -b
    for i in range(10):
        x += i
    return {a: b}, c, d, f, g


def arrays():
    with fluid.dygraph.guard():
        a = np.random.uniform(0.1, 1, [1, 2])
        b = 1 + a
        c = fluid.dygraph.to_variable(b)
        d = (c + 1) * 0.3
        e = fluid.layers.relu(d)
    return e


def functions():
    def of_int():
        return 1

    def of_two(x):
        if x > 0:
            return 1.0
        return False

    def unknown(x):
        return x

    a = of_int()
    b = of_two(3)
    return a, b, unknown(a)


FOUND = [
    (
        numbers,
        {"y": {Type.FLOAT}, "a": {Type.INT}, "b": {Type.FLOAT}, "c": {Type.BOOLEAN}, "d": {Type.STRING}}
        | {"e": {Type.NONE}, "f": {Type.UNKNOWN}, "g": {Type.FLOAT}},
    ),
    (
        arrays,
        {"a": {Type.NUMPY_NDARRAY}, "b": {Type.NUMPY_NDARRAY}, "c": {Type.TENSOR}, "d": {Type.TENSOR}}
        | {"e": {Type.PADDLE_RETURN_TYPES}},
    ),
    (
        functions,
        {"of_int": {Type.INT}, "of_two": {Type.FLOAT, Type.BOOLEAN}, "unknown": {Type.UNKNOWN}, "a": {Type.INT}}
        | {"b": {Type.FLOAT, Type.BOOLEAN}},
    ),
]


@pytest.mark.parametrize("function, types", FOUND, ids=lambda v: getattr(v, "__name__", ""))
def test_what_names_may_hold(function: Any, types: dict[str, set[int]]) -> None:
    visitor = to_static.StaticAnalysisVisitor(tree_of(function))
    scopes = visitor.get_var_env()
    assert len(scopes.cur_scope.sub_scopes) == 1
    scopes.cur_scope = scopes.cur_scope.sub_scopes[0]
    assert scopes.get_scope_var_type() == types


def test_wrappers_know_their_places() -> None:
    tree = tree_of(numbers)
    visitor = to_static.StaticAnalysisVisitor(tree)
    root, wrappers = visitor.get_node_wrapper_root(), visitor.get_node_to_wrapper_map()
    assert root.node is tree and root.parent is None
    for wrapper in wrappers.values():
        assert wrappers[wrapper.node] is wrapper
        assert wrapper.parent is None or wrapper in wrapper.parent.children


def test_types_of_operators() -> None:
    join = Type.binary_op_output_type
    assert join(Type.BOOLEAN, Type.FLOAT) == Type.FLOAT and join(Type.TENSOR, Type.INT) == Type.TENSOR
    assert join(Type.TENSOR, Type.NUMPY_NDARRAY) == Type.UNKNOWN and join(Type.STRING, Type.UNKNOWN) == Type.STRING


def loop_while(x):
    i = fluid.dygraph.to_variable(x)
    while x < 10:
        i = i + x
        x = x + 1
    return i


def loop_for(count):
    for i in range(count):
        found = fluid.layers.zeros(shape=[1], dtype="float32")
        fluid.layers.increment(found, value=2.0 * i)
    return found


def loop_attributes(self, n):
    s = 0
    step = 1
    while s < n.limit.high:
        s = s + step
        self.last = s
    return s


def loops_within():
    two = fluid.layers.fill_constant(shape=[1], value=2, dtype="int32")
    for j in range(two):
        for i in range(10):
            a = i + j
    return two, a


CARRIED = [
    (loop_while, [({"i", "x"}, set())]),
    (loop_for, [({"i", "count", "found"}, {"found"})]),
    (loop_attributes, [({"s", "n.limit.high"}, set())]),
    (loops_within, [({"j", "two", "a"}, {"a"}), ({"i", "j", "a"}, {"a"})]),
]


@pytest.mark.parametrize("function, names", CARRIED, ids=lambda v: getattr(v, "__name__", ""))
def test_names_that_loops_carry(function: Any, names: list[Any]) -> None:
    tree = tree_of(function)
    visitor = to_static.NameVisitor(tree)
    assert [visitor.get_loop_var_names(n) for n in ast.walk(tree) if visitor.is_control_flow_loop(n)] == names


def test_a_tree_is_converted() -> None:
    tree = tree_of(loop_while)
    converter = to_static.DygraphToStaticAst()
    assert converter.get_static_ast(tree).node is tree and converter.get_module_name() == "loop_while"
    assert "_jst.while_" in ast_to_source_code(tree) and "_jst.call" in ast_to_source_code(tree)


def test_loops_of_a_tree_are_converted() -> None:
    tree = tree_of(loop_for)
    to_static.LoopTransformer(to_static.StaticAnalysisVisitor(tree).get_node_wrapper_root()).transform()
    assert "_jst.for_" in ast_to_source_code(tree)


@pytest.mark.parametrize(
    "value, made",
    [(1.0, "dtype='float64', value=1.0"), (True, "dtype='bool', value=True"), (4293, "dtype='int64', value=4293")],
)
def test_statements_that_make_constants(value: Any, made: str) -> None:
    source = ast_to_source_code(create_fill_constant_node("a", value))
    assert source == f"a = fluid.layers.fill_constant(shape=[1], {made})\n"
    assert create_fill_constant_node("a", None) is None


def test_trees_as_functions() -> None:
    outside = 3

    def function(x: int) -> int:
        return x + outside

    made, path = ast_to_func(tree_of(function), function)
    assert made(1) == 4 and os.path.exists(path)
    with pytest.raises(TypeError, match=r"Type of ast_root should be gast\.AST or ast\.AST"):
        ast_to_func("x = 1", function)
    with pytest.raises(ValueError, match="expected: a def of function"):
        ast_to_func(tree_of(loop_for), function)


def test_names_of_attributes() -> None:
    assert get_attribute_full_name(ast.parse("a.b.c", mode="eval").body) == "a.b.c"
    with pytest.raises(AssertionError, match="pass that of"):
        get_attribute_full_name(ast.parse("a", mode="eval").body)
