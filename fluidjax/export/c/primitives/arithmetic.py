"""Arithmetic on elements. Integer overflow, division and conversion follow XLA where C leaves them undefined."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fluidjax.export.c.rules import REFUSES, element
from fluidjax.export.c.types import c_type, literal, short
from fluidjax.export.graph import Node


def _type(node: Node) -> np.dtype:
    return node.ins[-1].dtype


def _wrapping(operator: str) -> Callable[[Node, list[str]], str]:
    """Compute signed integers as unsigned, for which C defines overflow."""

    def rule(node: Node, args: list[str]) -> str:
        dtype = _type(node)
        if dtype.kind != "i":
            return _narrow(dtype, f"({args[0]} {operator} {args[1]})")
        word = f"uint{max(8 * dtype.itemsize, 32)}_t"
        return f"({c_type(dtype)})(({word}){args[0]} {operator} ({word}){args[1]})"

    return rule


def _narrow(dtype: np.dtype, text: str) -> str:
    """Convert back to the type after C has promoted it to int."""
    return f"({c_type(dtype)}){text}" if dtype.kind == "u" and dtype.itemsize < 4 else text


element("add", "add_any")(_wrapping("+"))
element("sub")(_wrapping("-"))


@element("mul")
def mul(node: Node, args: list[str]) -> str:
    """x * y."""
    return _wrapping("*")(node, args)


@element("neg")
def neg(node: Node, args: list[str]) -> str:
    """-x."""
    return f"(-{args[0]})" if _type(node).kind == "f" else _wrapping("-")(node, ["0", args[0]])


@element("square")
def square(node: Node, args: list[str]) -> str:
    """x * x."""
    return f"square_{short(_type(node))}({args[0]})"


@element("integer_pow")
def integer_pow(node: Node, args: list[str]) -> str:
    """x to a constant integer power."""
    return f"ipow_{short(_type(node))}({args[0]}, {int(node.params['y'])})"


@element("div")
def div(node: Node, args: list[str]) -> str:
    """x / y; integers round towards 0."""
    if _type(node).kind == "f":
        return f"({args[0]} / {args[1]})"
    return f"div_{short(_type(node))}({args[0]}, {args[1]})"


@element("rem")
def rem(node: Node, args: list[str]) -> str:
    """The remainder with the sign of x."""
    if _type(node).kind == "f":
        return f"{_math(node, 'fmod')}({args[0]}, {args[1]})"
    return f"rem_{short(_type(node))}({args[0]}, {args[1]})"


def _math(node: Node, name: str) -> str:
    return name + ("f" if _type(node).itemsize == 4 else "")


def _floats(*names: str) -> Callable[[Node], str]:
    return lambda node: "" if all(v.dtype.kind == "f" for v in node.ins) else f"of {node.ins[0].dtype}"


# Primitive -> function of math.h, or one of ours that has both a word_f32 and a word_f64 form.
_FUNCTIONS = {
    "log1p": "log1p", "expm1": "expm1", "sin": "sin", "cos": "cos", "tan": "tan",
    "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "asinh": "asinh", "acosh": "acosh",
    "atanh": "atanh", "floor": "floor", "ceil": "ceil", "erf": "erf", "erfc": "erfc", "lgamma": "lgamma",
    "cbrt": "cbrt", "exp2": "exp2", "sqrt": "sqrt",
    "pow": "pow", "atan2": "atan2", "nextafter": "nextafter",
}  # fmt: skip
_OURS = ("exp", "log", "tanh", "logistic", "rsqrt", "erf_inv", "digamma", "bessel_i0e", "bessel_i1e")


def _function(name: str) -> Callable[[Node, list[str]], str]:
    return lambda node, args: f"{_math(node, name)}({', '.join(args)})"


def _own(name: str) -> Callable[[Node, list[str]], str]:
    return lambda node, args: f"{name}_{short(node.ins[0].dtype)}({', '.join(args)})"


for _prim, _name in _FUNCTIONS.items():
    element(_prim)(_function(_name))
    REFUSES[_prim] = _floats()
for _prim in _OURS:
    element(_prim)(_own(_prim))
    REFUSES[_prim] = _floats()
for _prim in ("max", "min", "sign", "abs", "is_finite", "shift_left", "shift_right_logical", "shift_right_arithmetic",
              "population_count", "clz"):  # fmt: skip
    element(_prim)(_own(_prim))


def _float_power(node: Node) -> str:
    same = all(v.dtype == node.ins[0].dtype and v.dtype.kind == "f" for v in node.ins)
    return "" if same else f"of {node.ins[0].dtype} and {node.ins[1].dtype}"


REFUSES["pow"] = _float_power


@element("round")
def round_(node: Node, args: list[str]) -> str:
    """Round to the nearest integer: halves to even, or away from 0."""
    even = int(node.params["rounding_method"]) == 1
    return f"{_math(node, 'rint' if even else 'round')}({args[0]})"


REFUSES["round"] = _floats()


def _comparison(operator: str) -> Callable[[Node, list[str]], str]:
    return lambda node, args: f"({args[0]} {operator} {args[1]})"


for _prim, _operator in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    element(_prim)(_comparison(_operator))


def _in_total_order(operator: str) -> Callable[[Node, list[str]], str]:
    """A comparison in the total order of floats: -NaN, -inf ... -0, 0 ... inf, NaN."""

    def compared(node: Node, args: list[str]) -> str:
        if node.ins[0].dtype.kind == "f":
            args = [f"rank_{short(node.ins[0].dtype)}({arg})" for arg in args]
        return f"({args[0]} {operator} {args[1]})"

    return compared


for _prim, _operator in {"lt_to": "<", "le_to": "<="}.items():
    element(_prim)(_in_total_order(_operator))


def _bits(operator: str) -> Callable[[Node, list[str]], str]:
    return lambda node, args: f"({c_type(_type(node))})({args[0]} {operator} {args[1]})"


for _prim, _operator in {"and": "&", "or": "|", "xor": "^"}.items():
    element(_prim)(_bits(_operator))


@element("not")
def not_(node: Node, args: list[str]) -> str:
    """Bitwise or logical not."""
    return f"(!{args[0]})" if _type(node).kind == "b" else f"({c_type(_type(node))})(~{args[0]})"


@element("clamp")
def clamp(node: Node, args: list[str]) -> str:
    """min(max(low, x), high)."""
    word = short(node.ins[1].dtype)
    return f"min_{word}(max_{word}({args[0]}, {args[1]}), {args[2]})"


@element("select_n")
def select_n(node: Node, args: list[str]) -> str:
    """Select case number ``which``."""
    which, *cases = args
    if len(cases) == 1:
        return cases[0]
    text = cases[-1]
    for at in range(len(cases) - 2, -1, -1):
        condition = f"!{which}" if node.ins[0].dtype.kind == "b" else f"{which} == {at}"
        text = f"({which} ? {text} : {cases[at]})" if condition[0] == "!" else f"({condition} ? {cases[at]} : {text})"
    return text


@element("reduce_precision")
def reduce_precision(node: Node, args: list[str]) -> str:
    """A double rounded to the precision of a float."""
    return f"(double)(float){args[0]}"


@element("convert_element_type")
def convert_element_type(node: Node, args: list[str]) -> str:
    """Convert the type: floats to integers saturate, NaN becomes 0."""
    source, target = node.ins[0].dtype, node.outs[0].dtype
    if target.kind == "b":
        return f"({args[0]} != {literal(0, source)})"
    if source.kind == "f" and target.kind in "iu":
        return f"({c_type(target)})f64_to_{short(target)}({args[0]})"
    return f"(({c_type(target)}){args[0]})"


def _fewer_bits(node: Node) -> str:
    kept = node.params["exponent_bits"], node.params["mantissa_bits"]
    return "" if node.ins[0].dtype.name == "float64" and kept == (8, 23) else f"to {kept[0]} and {kept[1]} bits"


REFUSES["reduce_precision"] = _fewer_bits


@element("bitcast_convert_type")
def bitcast_convert_type(node: Node, args: list[str]) -> str:
    """The same bits as another type of the same width."""
    return f"bits_{short(node.ins[0].dtype)}_{short(node.outs[0].dtype)}({args[0]})"


REFUSES["bitcast_convert_type"] = lambda node: (
    "" if {node.ins[0].dtype.itemsize, node.outs[0].dtype.itemsize} in ({4}, {8}) else "to another width"
)
