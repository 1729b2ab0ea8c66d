"""``fluid.dygraph_utils``: bias and activation of layers in eager mode."""

from __future__ import annotations

from fluidjax.eager.ops import ops
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.framework import dygraph_only


@dygraph_only
def _append_activation_in_dygraph(
    input: VarBase, act: str | None = None, use_cudnn: bool | None = None, use_mkldnn: bool | None = None
) -> VarBase:
    """Apply the activation `act`, if any, to a variable. Raises AssertionError outside eager mode."""
    if act is None:
        return input
    settings = [("use_cudnn", use_cudnn), ("use_mkldnn", use_mkldnn)]
    return getattr(ops, act)(input, *(word for name, value in settings if value for word in (name, value)))


@dygraph_only
def _append_bias_in_dygraph(input: VarBase, bias: VarBase | None = None, axis: int = 1) -> VarBase:
    """Add a bias, if any, aligned at `axis`. Raises AssertionError outside eager mode."""
    return input if bias is None else ops.elementwise_add(input, bias, "axis", axis)
