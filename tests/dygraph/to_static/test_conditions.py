"""Conditions as ops, and the names that statements use: what Fluid's ifelse_transformer says of a syntax tree."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from fluidjax import unique_name
from fluidjax.dygraph.dygraph_to_static.ifelse_transformer import IfConditionVisitor, get_name_ids
from fluidjax.dygraph.dygraph_to_static.static_analysis import NodeVarType, StaticAnalysisVisitor
from fluidjax.dygraph.dygraph_to_static.utils import is_control_flow_to_transform

FUNCTION = """
def f(x, y):
    z = 1
    if x > y:
        z = x * x
        a = z
    else:
        z = foo(y.shape[0], k=z)
    def g():
        return q + x
    return z
"""


def names(found: dict[str, list[Any]]) -> dict[str, str]:
    """The contexts' initials."""
    return {name: "".join([type(context).__name__[0] for context in contexts]) for name, contexts in found.items()}


def test_the_names_of_a_function_in_the_order_of_a_run() -> None:
    found = names(get_name_ids([ast.parse(FUNCTION)]))
    assert found == {"z": "SSLLS", "x": "LLL", "y": "LL", "a": "S"}  # what is called or returned is left out


def test_a_branch_before_the_end_gives_what_both_sides_write() -> None:
    tree = ast.parse(FUNCTION)
    body: Any = tree.body[0].body  # type: ignore[attr-defined]
    assert names(get_name_ids([tree], body[2])) == {"z": "SS"}
    assert names(get_name_ids([tree], body[1].body[1])) == {"z": "SS", "x": "LL"}


@pytest.mark.parametrize("text", ["a + b", "x is None", "fluid.layers.sum(x).numpy() != None", "foo(x)", "1 < 2"])
def test_conditions_of_python(text: str) -> None:
    node = ast.parse(text, mode="eval").body
    condition = IfConditionVisitor(node)
    assert not condition.is_control_flow() and condition.transform() == (node, [])


@pytest.mark.parametrize(
    ("text", "result", "before"),
    [
        ("x.numpy()[1] > 1", "x[1] > 1", []),
        ("not x.numpy()", "logic_not_0", ["logic_not_0 = fluid.layers.logical_not(x)"]),
        ("layers.sum(x)", "bool_tensor_0", ["bool_tensor_0 = fluid.layers.cast(x=layers.sum(x), dtype='bool')"]),
        (
            "fluid.layers.mean(x) > 0 and a > 1 and b is None",
            "logic_and_1",
            [
                "bool_tensor_0 = fluid.layers.fill_constant(shape=[1], dtype='bool', value=bool(a > 1))",
                "bool_tensor_1 = fluid.layers.fill_constant(shape=[1], dtype='bool', value=bool(b is None))",
                "logic_and_0 = fluid.layers.logical_and(x=fluid.layers.mean(x) > 0, y=bool_tensor_0)",
                "logic_and_1 = fluid.layers.logical_and(x=logic_and_0, y=bool_tensor_1)",
            ],
        ),
    ],
)  # fmt: skip
def test_conditions_of_variables(text: str, result: str, before: list[str]) -> None:
    with unique_name.guard():
        condition = IfConditionVisitor(ast.parse(text, mode="eval").body)
        assert condition.is_control_flow()
        node, assigned = condition.transform()
    assert (ast.unparse(node), [ast.unparse(each) for each in assigned]) == (result, before)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("while x > 1:\n    x = x - 1", False),
        ("while x:\n    break", True),
        ("while True:\n    for i in y:\n        break", False),
        ("for i in range(9):\n    if i: continue", True),
        ("for i in y:\n    break", False),
        ("x = fluid.layers.zeros([1], 'int32')\nfor i in range(x): pass", True),
        ("x = fluid.layers.zeros([1], 'int32')\nwhile x: pass", False),
        ("x = fluid.layers.zeros([1], 'int32')\nif x: pass", True),
    ],
)
def test_statements_of_variables(text: str, is_one: bool) -> None:
    tree = ast.parse(text)
    assert is_control_flow_to_transform(tree.body[-1], StaticAnalysisVisitor(tree)) is is_one


def test_the_types_of_names_may_be_given() -> None:
    node = ast.parse("x > 1", mode="eval").body
    assert is_control_flow_to_transform(node, None, {"x": {NodeVarType.TENSOR}})
    assert not is_control_flow_to_transform(node, None, {"x": {NodeVarType.NUMPY_NDARRAY}})


def test_what_is_no_tree_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"Type of input node should be gast\.AST"):
        IfConditionVisitor("a + b")
    with pytest.raises(AssertionError, match=r"The type of input node must be gast\.AST"):
        is_control_flow_to_transform("a + b")
