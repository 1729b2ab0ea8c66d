"""Small syntax trees of Python's ``ast``, and names changed in them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Sequence
from typing import Any

from fluidjax.dygraph.dygraph_to_static.trees import back, kind, source_of, to_ast


def index_in_list(array_list: Sequence[Any], item: Any) -> int:
    """The index of an item, or -1."""
    return array_list.index(item) if item in array_list else -1


def is_candidate_node(node: Any) -> bool:
    """Whether a condition or statement may depend on variables by its form alone."""
    forms = ("BoolOp", "Compare", "For", "If", "UnaryOp", "While")
    return kind(node) in forms or ".numpy()" in source_of(node)


def generate_name_node(name_ids: str | Iterable[str], ctx: Any = None) -> ast.expr:
    """A name, or a tuple of names.

    Args:
        name_ids: one or several; raises TypeError for anything but texts.
        ctx: how they are used, of ``ast``; to be read by default.
    """
    names = [name_ids] if isinstance(name_ids, str) else name_ids
    if not isinstance(names, list | tuple | set):
        raise TypeError(f"name_ids must be list or tuple or set, but received {type(name_ids)}. Pass names")
    nodes: list[ast.expr] = [ast.Name(id=name, ctx=ctx or ast.Load()) for name in names]
    return nodes[0] if len(nodes) == 1 else ast.Tuple(elts=nodes, ctx=ctx or ast.Load())


def create_assign_node(name: str | Iterable[str], node: Any) -> tuple[ast.expr, ast.stmt]:
    """The target, and the statement that assigns a value to it."""
    target = generate_name_node(name, ast.Store())
    return target, ast.fix_missing_locations(ast.Assign(targets=[target], value=to_ast(node), lineno=1))


def create_funcDef_node(
    nodes: Sequence[Any], name: str, input_args: Any, return_name_ids: str | Iterable[str] | None
) -> ast.stmt:
    """A function of given statements that returns what some names hold.

    Args:
        nodes: its statements.
        name: its own.
        input_args: the node of its parameters.
        return_name_ids: the names; nothing is returned without any.
    """
    value = generate_name_node(return_name_ids) if return_name_ids else None
    body = [to_ast(node) for node in nodes]
    made = ast.parse(f"def {name}(): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.args, made.body = to_ast(input_args), [*body, ast.Return(value=value)]
    return ast.fix_missing_locations(made)


def create_api_shape_node(tensor_shape_node: Any) -> Any:
    """``fluid.layers.shape(x)`` for ``x.shape``, also under an index. Raises AssertionError for anything else."""
    what = kind(tensor_shape_node)
    assert what in ("Attribute", "Subscript"), f"expected the node of x.shape or x.shape[0], received {what}: pass one"
    if what == "Attribute":
        shape = ast.parse(f"fluid.layers.shape({source_of(tensor_shape_node.value)})", mode="eval").body
        return back(shape, tensor_shape_node)
    made = copy.deepcopy(tensor_shape_node)
    made.value = create_api_shape_node(made.value)
    return made


def get_constant_variable_node(
    name: str, value: float, shape: Sequence[int] = (1,), dtype: str = "int64"
) -> ast.Module:
    """The statement that binds a name to a constant of a given shape and dtype, in a module."""
    return ast.parse(f"{name} = fluid.layers.fill_constant({list(shape)}, {dtype!r}, {value})")


class RenameTransformer(ast.NodeTransformer):
    """Renames names and dotted names in a tree, in place.

    Args:
        node: the tree. Raises AssertionError for anything else.
    """

    def __init__(self, node: Any) -> None:
        assert isinstance(node, ast.AST), (
            f"RenameTransformer only accepts gast.AST as input, received {type(node)}: parse the source first"
        )
        self.root = node

    def rename(self, old_name: str, new_name: str) -> None:
        """Rename what is called `old_name`."""
        self._old, self._new = old_name, new_name
        self.visit(self.root)

    def visit(self, node: Any) -> Any:
        """Rename in a part of the tree."""
        self.generic_visit(node)
        if kind(node) == "Name" and node.id == self._old:
            node.id = self._new
        elif kind(node) == "Attribute" and source_of(node) == self._old:
            return back(ast.parse(self._new, mode="eval").body, node)
        return node
