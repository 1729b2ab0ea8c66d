"""What Fluid's converter says of calls, and the small trees that it writes, by Fluid's own names."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.dygraph.dygraph_to_static import convert_call_func, program_translator, utils


def tree(source: str) -> Any:
    return ast.parse(source, mode="eval").body


# of fluid.dygraph, of fluid, of NumPy, to_variable: as 1.8.5 says, which says None of np.mean
CALLS = {
    "fluid.layers.mean(x)": (False, True, False, False),
    "fluid.dygraph.Linear(3, 4)": (True, True, False, False),
    "fluid.dygraph.guard()": (True, True, False, False),
    "np.mean(x)": (False, False, True, False),
    "np.random.uniform(3)": (False, False, True, False),
    "foo(x)": (False, False, False, False),
    "to_variable(x)": (True, True, False, True),
    "fluid.dygraph.to_variable(x)": (True, True, False, True),
    "layers.relu(x)": (False, True, False, False),
    "dygraph.Conv2D(1)": (True, True, False, False),
    "len(x)": (False, False, False, False),
    "paddle.batch(r)": (False, False, False, False),
    "fluid.dygraph.dygraph_to_static.convert_call(f)": (False, True, False, False),
}


@pytest.mark.parametrize("source", CALLS)
def test_calls_are_recognised(source: str) -> None:
    asked = (utils.is_dygraph_api, utils.is_paddle_api, utils.is_numpy_api, utils.is_to_variable)
    assert tuple(ask(tree(source)) for ask in asked) == CALLS[source]


def test_only_calls_are_asked_about() -> None:
    with pytest.raises(AssertionError, match="the node of a call"):
        utils.is_paddle_api(tree("x"))


def test_functions_are_recognised() -> None:
    layer, own = fluid.layers.mean, tree
    assert [convert_call_func.is_builtin(f) for f in (len, print, int, np.mean, layer, own)] == [True] * 4 + [False] * 2
    asked = [convert_call_func.is_paddle_func(f) for f in (layer, fluid.dygraph.Linear, len, np.mean, own)]
    assert asked == [True, True, False, False, False]


def test_classes_that_have_a_static_function() -> None:
    assert utils.to_static_api("NoamDecay") == "noam_decay"
    for name, function in utils.dygraph_class_to_static_api.items():
        assert callable(getattr(fluid.layers, function)) and callable(getattr(fluid.dygraph, name))
    with pytest.raises(NotImplementedError, match="Paddle dygraph API Linear cannot be converted"):
        utils.to_static_api("Linear")


def renamed(source: str, *pairs: tuple[str, str]) -> ast.AST:
    root = ast.parse(source)
    for old, new in pairs:
        utils.RenameTransformer(root).rename(old, new)
    return root


PARAMETERS = ast.parse("def f(a, b=1): pass").body[0].args  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "node, source",
    [
        (utils.create_api_shape_node(tree("x.y.shape")), "fluid.layers.shape(x.y)"),
        (utils.create_api_shape_node(tree("x.shape[0]")), "fluid.layers.shape(x)[0]"),
        (utils.get_constant_variable_node("a", 3), "a = fluid.layers.fill_constant([1], 'int64', 3)"),
        (utils.create_assign_node("a", tree("f(x)"))[1], "a = f(x)"),
        (utils.create_assign_node(["a", "b"], tree("f(x)"))[1], "a, b = f(x)"),
        (utils.generate_name_node("a"), "a"),
        (renamed("y = a.b + c", ("a.b", "z"), ("c", "d")), "y = z + d"),
        (
            utils.create_funcDef_node(ast.parse("c = a + b").body, "g", PARAMETERS, ["c"]),
            "def g(a, b=1):\n    c = a + b\n    return c",
        ),
        (utils.create_funcDef_node([], "g", PARAMETERS, None), "def g(a, b=1):\n    return"),
    ],
)
def test_small_trees(node: Any, source: str) -> None:
    assert utils.ast_to_source_code(node).replace("(a, b) =", "a, b =").strip() == source


def test_what_no_tree_is_made_of() -> None:
    with pytest.raises(TypeError, match="name_ids must be list or tuple or set"):
        utils.generate_name_node(3)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=r"the node of x\.shape"):
        utils.create_api_shape_node(tree("x"))
    with pytest.raises(AssertionError, match="RenameTransformer only accepts"):
        utils.RenameTransformer("x")


def test_forms_and_places() -> None:
    assert [utils.is_candidate_node(tree(s)) for s in ("x > 1", "not x", "x.numpy()", "x")] == [True, True, True, False]
    assert (utils.index_in_list([1, 2], 2), utils.index_in_list([1, 2], 3)) == (1, -1)


def test_a_cache_converts_once() -> None:
    def plus(x: Any) -> Any:
        return x + 1

    cache = program_translator.FunctionCache()
    assert not cache.exist(plus)
    found = cache.get_or_cache_func(plus)
    assert cache.exist(plus) and cache.get_or_cache_func(plus) is found and found(2) == 3
