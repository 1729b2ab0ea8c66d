# ruff: noqa: F401  (the names of the modules are gathered here)
"""Conversion of eager functions to static programs, under Fluid's names; implemented by ``fluidjax.to_static``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluidjax.base.later import later

# Few programs translate anything: the modules are imported when one of their names is asked for.
_HOMES = {
    "ast_transformer": ("DygraphToStaticAst", "convert_to_static"),
    "building": (),
    "calls": (),
    "convert_call_func": ("convert_call",),
    "ifelse_transformer": (),
    "nodes": (),
    "loop_transformer": ("LoopTransformer", "NameVisitor"),
    "partial_program": (),
    "program_translator": ("ProgramTranslator", "convert_function_with_cache"),
    "static_analysis": ("AstNodeWrapper", "NodeVarType", "StaticAnalysisVisitor"),
    "trees": (),
    "utils": (),
    "variable_trans_func": (
        "create_static_variable_gast_node", "data_layer_not_check", "to_static_variable_gast_node",
    ),
}  # fmt: skip

if TYPE_CHECKING:
    from fluidjax.dygraph.dygraph_to_static import (
        ast_transformer,
        convert_call_func,
        ifelse_transformer,
        loop_transformer,
        partial_program,
        program_translator,
        static_analysis,
        utils,
        variable_trans_func,
    )
    from fluidjax.dygraph.dygraph_to_static.ast_transformer import DygraphToStaticAst, convert_to_static
    from fluidjax.dygraph.dygraph_to_static.convert_call_func import convert_call
    from fluidjax.dygraph.dygraph_to_static.loop_transformer import LoopTransformer, NameVisitor
    from fluidjax.dygraph.dygraph_to_static.program_translator import ProgramTranslator, convert_function_with_cache
    from fluidjax.dygraph.dygraph_to_static.static_analysis import AstNodeWrapper, NodeVarType, StaticAnalysisVisitor
    from fluidjax.dygraph.dygraph_to_static.variable_trans_func import (
        create_static_variable_gast_node,
        data_layer_not_check,
        to_static_variable_gast_node,
    )
else:
    __getattr__, __dir__ = later(
        __name__, {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in (home, *names)}
    )

__all__ = [
    "AstNodeWrapper", "DygraphToStaticAst", "LoopTransformer", "NameVisitor", "NodeVarType", "ProgramTranslator",
    "StaticAnalysisVisitor", "convert_call", "convert_function_with_cache", "convert_to_static",
    "create_static_variable_gast_node", "data_layer_not_check", "to_static_variable_gast_node",
]  # fmt: skip
