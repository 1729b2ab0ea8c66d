"""The conversion of a single function, under Fluid's name."""

from __future__ import annotations

import ast
from typing import Any

from fluidjax.dygraph.dygraph_to_static.program_translator import convert_function_with_cache
from fluidjax.dygraph.dygraph_to_static.static_analysis import AstNodeWrapper, StaticAnalysisVisitor
from fluidjax.dygraph.dygraph_to_static.trees import back, kind, to_ast
from fluidjax.to_static.statements import rewrite

__all__ = ["DygraphToStaticAst", "convert_to_static"]


class DygraphToStaticAst(ast.NodeTransformer):
    """Converts the functions in a syntax tree."""

    def get_static_ast(self, root: Any) -> AstNodeWrapper:
        """The wrapper of an ``ast`` or ``gast`` tree, whose functions are converted in place."""
        self._function = ""
        wrapper = StaticAnalysisVisitor(root).get_node_wrapper_root()
        assert wrapper is not None
        self.transfer_from_node_type(wrapper)
        return wrapper

    def transfer_from_node_type(self, node_wrapper: AstNodeWrapper) -> None:
        """Convert the functions of a wrapped tree in place."""
        self.visit(node_wrapper.node)

    def visit(self, node: Any) -> Any:
        """Convert the functions in a tree."""
        return self.visit_FunctionDef(node) if kind(node) == "FunctionDef" else self.generic_visit(node)

    def visit_FunctionDef(self, node: Any) -> Any:
        """Convert a function and remove its decorators."""
        self._function = self._function or node.name
        node.decorator_list = []
        return back(ast.fix_missing_locations(rewrite(ast.fix_missing_locations(to_ast(node)), None)), node)

    def get_module_name(self) -> str:
        """The name of the converted function."""
        return self._function

    def get_feed_name_to_idx(self) -> dict[str, int]:
        """Maps feed names to argument indices; always empty, since feeds are identified by value at each call."""
        return {}


def convert_to_static(dyfunc: Any) -> Any:
    """Convert `dyfunc` to a function that writes its computation into the current programs; cached."""
    return convert_function_with_cache(dyfunc)
