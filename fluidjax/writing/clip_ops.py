"""The ops written by clips, each as a layer so that its variables have Fluid's names: ``clip_0.tmp_0``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax import unique_name
from fluidjax.base.enums import VarType
from fluidjax.base.mode import in_dygraph_mode
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper


def _write(
    op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], like: Variable, stop_gradient: bool = False
) -> Variable:
    helper = LayerHelper(op_type)
    out = helper.create_variable_for_type_inference(like.dtype, stop_gradient)
    helper.append_op(type=op_type, inputs=inputs, outputs={"Out": [out]}, attrs=attrs)
    return out


def _write_like(op_type: str, x: Variable, attrs: dict[str, Any]) -> Variable:
    """As `_write`, with a result of the same variable type as `x`: sparse gradients stay sparse."""
    helper = LayerHelper(op_type)
    name = unique_name.generate_with_ignorable_key(f"{helper.name}.tmp")
    out = helper.create_variable(type=x.type, name=name, dtype=x.dtype, persistable=False)
    helper.append_op(type=op_type, inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    return out


def clip(x: Variable, low: float, high: float) -> Variable:
    """min(max(x, low), high)."""
    return _write_like("clip", x, {"min": low, "max": high})


def clip_by_norm(x: Variable, max_norm: float) -> Variable:
    """x, scaled down to a norm of at most `max_norm`."""
    return _write_like("clip_by_norm", x, {"max_norm": max_norm})


def square_sum(x: Variable) -> Variable:
    """The sum of squares, shape [1]; duplicate rows of a sparse value are summed first."""
    if x.type == VarType.SELECTED_ROWS:
        x = _write("merge_selected_rows", {"X": x}, {}, x)
        x = _write("get_tensor_from_selected_rows", {"X": x}, {}, x)
    x = _write("square", {"X": x}, {}, x)
    return _write("reduce_sum", {"X": x}, {"dim": [0], "keep_dim": False, "reduce_all": True}, x)


def limit(value: float, like: Variable) -> Variable:
    """`value` as a constant of shape [1]."""
    attrs = {"shape": [1], "dtype": int(like.dtype), "value": value, "str_value": str(value), "force_cpu": False}
    return _write("fill_constant", {}, attrs, like, stop_gradient=True)


def norm_of(square_sums: Sequence[Variable]) -> Variable:
    """The square root of the sum of `square_sums`."""
    first = square_sums[0]
    if in_dygraph_mode():  # ops whose results the tracer numbers, as Fluid's there
        joined = _write("concat", {"X": list(square_sums)}, {"axis": 0}, first)
        total = _write("reduce_sum", {"X": joined}, {"dim": [0], "keep_dim": False, "reduce_all": True}, joined)
    else:
        total = _write("sum", {"X": list(square_sums)}, {"use_mkldnn": False}, first)
    return _write("sqrt", {"X": total}, {}, total)


def factor(max_norm: Variable, norm: Variable) -> Variable:
    """max_norm / max(max_norm, norm)."""
    larger = _write("elementwise_max", {"X": [max_norm], "Y": [norm]}, {"axis": -1}, max_norm)
    return _write("elementwise_div", {"X": [max_norm], "Y": [larger]}, {"axis": -1}, max_norm)


def multiply(x: Variable, y: Variable) -> Variable:
    """x * y."""
    return _write("elementwise_mul", {"X": [x], "Y": [y]}, {"axis": -1}, x)
