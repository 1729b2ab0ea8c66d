"""A program as the lowering sees it; see ``fluidjax.framework.view``."""

from fluidjax.framework.view import block_view, op_view, program_view, var_view

__all__ = ["block_view", "op_view", "program_view", "var_view"]
