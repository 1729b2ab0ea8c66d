"""Arithmetic: operations on elements, whose operands may be broadcast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidjax.export.graph import Node, Value
from fluidjax.export.python.functions import Function, rule
from fluidjax.export.python.texts import (
    AND,
    ATOM,
    COMPARE,
    OR,
    POWER,
    PRODUCT,
    SHIFT,
    SIGN,
    SUM,
    XOR,
    Expr,
    call,
    dtype_text,
)

_JNP = """abs acos acosh asin asinh atan atanh atan2 ceil cos cosh exp exp2 expm1 floor log log1p nextafter
sign sin sinh sqrt tan tanh""".split()
_LAX = """bessel_i0e bessel_i1e cbrt clz digamma erf erf_inv erfc lgamma population_count rem rsqrt
shift_right_arithmetic shift_right_logical""".split()
_NAMES = {"max": "jnp.maximum", "min": "jnp.minimum", "logistic": "jax.nn.sigmoid", "is_finite": "jnp.isfinite"}
_ARC = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan"}
_ARC |= {"atanh": "arctanh", "atan2": "arctan2"}
_OPERATORS = {
    "add": ("+", SUM), "add_any": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "pow": ("**", POWER),
    "eq": ("==", COMPARE), "ne": ("!=", COMPARE), "lt": ("<", COMPARE), "le": ("<=", COMPARE), "gt": (">", COMPARE),
    "ge": (">=", COMPARE), "and": ("&", AND), "or": ("|", OR), "xor": ("^", XOR), "shift_left": ("<<", SHIFT),
}  # fmt: skip
_ASSOCIATIVE = ("&", "|", "^")


def joined(f: Function, ins: Sequence[Value], level: int, render: Callable[[list[Expr]], str]) -> Expr:
    """An expression of operands that broadcast against each other."""
    exprs = [f.loose(value) for value in ins]
    if not any(e.typed for e in exprs):
        exprs[0] = Expr(f"{dtype_text(ins[0].dtype)}({exprs[0].text})", ATOM, ())
    return Expr(render(exprs), level, broadcast([e.shape for e in exprs]))


def broadcast(shapes: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The shape that the shapes broadcast to; sizes may be symbols."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*padded, strict=True))


def _enter_operator(name: str, sign: str, level: int) -> None:
    def operator(f: Function, node: Node) -> Expr:
        def render(exprs: list[Expr]) -> str:
            left, right = exprs
            first = level + (sign == "**" or level == COMPARE)
            second = level + (sign not in _ASSOCIATIVE and sign != "**")
            return f"{left.at(first)} {sign} {right.at(second)}"

        return joined(f, node.ins, level, render)

    rule(name)(operator)


def _enter_function(name: str, text: str) -> None:
    def function(f: Function, node: Node) -> Expr:
        return joined(f, node.ins, ATOM, lambda exprs: call(text, [e.text for e in exprs]))

    rule(name)(function)


def _enter_lax(name: str) -> None:
    def function(f: Function, node: Node) -> Expr:
        if len(node.ins) == 1:
            value = f.loose(node.ins[0])
            if value.typed:
                return Expr(call(f"lax.{name}", [value.text]), ATOM, value.shape)
        return Expr(call(f"lax.{name}", [f.tight(v, 0) for v in node.ins]), ATOM, node.outs[0].shape)

    rule(name)(function)


for _name, (_sign, _level) in _OPERATORS.items():
    _enter_operator(_name, _sign, _level)
for _name in _JNP:
    _enter_function(_name, f"jnp.{_ARC.get(_name, _name)}")
for _name, _text in _NAMES.items():
    _enter_function(_name, _text)
for _name in _LAX:
    _enter_lax(_name)


@rule("div")
def div(f: Function, node: Node) -> Expr:
    """A quotient; integers truncate towards zero."""
    if node.outs[0].dtype.kind == "f":
        return joined(f, node.ins, PRODUCT, lambda e: f"{e[0].at(PRODUCT)} / {e[1].at(PRODUCT + 1)}")
    return Expr(call("lax.div", [f.tight(v, 0) for v in node.ins]), ATOM, node.outs[0].shape)


@rule("neg")
def neg(f: Function, node: Node) -> Expr:
    """-x."""
    return joined(f, node.ins, SIGN, lambda e: f"-{e[0].at(SIGN)}")


@rule("not")
def logical_not(f: Function, node: Node) -> Expr:
    """~x."""
    return joined(f, node.ins, SIGN, lambda e: f"~{e[0].at(SIGN)}")


@rule("square")
def square(f: Function, node: Node) -> Expr:
    """x ** 2."""
    return joined(f, node.ins, POWER, lambda e: f"{e[0].at(ATOM)} ** 2")


@rule("integer_pow")
def integer_pow(f: Function, node: Node) -> Expr:
    """x ** n."""
    return joined(f, node.ins, POWER, lambda e: f"{e[0].at(ATOM)} ** {node.params['y']}")


@rule("round")
def round_(f: Function, node: Node) -> Expr:
    """lax.round, half to even or away from zero."""
    method = f.mark("rounding_method", node.params["rounding_method"])
    return Expr(call("lax.round", [f.tight(node.ins[0], 0), method]), ATOM, node.outs[0].shape)


@rule("clamp")
def clamp(f: Function, node: Node) -> Expr:
    """Clamp to bounds; NaN bounds are left to lax.clamp, since the jnp functions treat them differently."""
    low, x, high = node.ins
    return joined(f, (x, low, high), ATOM, lambda e: f"jnp.clip({e[0].text}, {e[1].text}, {e[2].text})")


@rule("select_n")
def select_n(f: Function, node: Node) -> Expr:
    """jnp.where; lax.select_n for more than two cases."""
    which, *cases = node.ins
    if which.dtype != bool or len(cases) != 2:
        return Expr(call("lax.select_n", [f.tight(v, 0) for v in node.ins]), ATOM, node.outs[0].shape)
    no, yes = (f.loose(v) for v in cases)
    if not no.typed and not yes.typed:
        yes = Expr(f"{dtype_text(cases[1].dtype)}({yes.text})", ATOM, ())
    condition = f.loose(which)
    text = call("jnp.where", [condition.text, yes.text, no.text])
    return Expr(text, ATOM, broadcast([condition.shape, yes.shape, no.shape]))


@rule("convert_element_type")
def convert(f: Function, node: Node) -> Expr:
    """x.astype(dtype)."""
    value, dtype = f.loose(node.ins[0]), dtype_text(node.outs[0].dtype)
    if not value.typed:
        return Expr(f"{dtype}({value.text})", ATOM, ())
    return Expr(f"{value.at(ATOM)}.astype({dtype})", ATOM, value.shape)


@rule("bitcast_convert_type", "reduce_precision")
def bits(f: Function, node: Node) -> Expr:
    """The lax functions of the same names."""
    p = node.params
    words = [dtype_text(p["new_dtype"])] if "new_dtype" in p else [str(p["exponent_bits"]), str(p["mantissa_bits"])]
    return Expr(call(f"lax.{node.prim}", [f.tight(node.ins[0], 0), *words]), ATOM, node.outs[0].shape)
