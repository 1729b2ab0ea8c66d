"""Primitives as statements of a Python function."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fluidjax.export.graph import Body, Node, Value
from fluidjax.export.python.texts import ATOM, Expr, dtype_text, identifier, is_fixed, literal, number_text

Rule = Callable[["Function", Node], "Expr | list[Expr]"]
RULES: dict[str, Rule] = {}
# An expression is nested into the next one up to this many characters.
GROWS = 76
# Local names in a function of several primitives, by the primitive that computes the value.
WORDS = {
    "exp": "grown", "reduce_sum": "total", "reduce_max": "most", "reduce_min": "least", "select_n": "chosen",
    "gather": "rows", "sub": "apart", "rsqrt": "scale", "mul": "product", "dot_general": "product", "iota": "places",
    "concatenate": "joined", "add": "added", "gt": "is_more", "lt": "is_less", "eq": "is_same", "ge": "is_more",
    "le": "is_less", "convert_element_type": "x", "reshape": "x", "transpose": "turned", "slice": "part",
}  # fmt: skip
# Constants with more elements become parameters.
LARGE = 16


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of primitives: ``rule(function, node)`` -> an expression, or one for each output."""

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


def large(value: Value) -> bool:
    """Whether a constant is large enough to be stored with the parameters."""
    return value.constant is not None and value.constant.size > LARGE and not _uniform(value.constant)


def _uniform(array: np.ndarray) -> bool:
    return bool(
        array.size and np.array_equal(array, np.full_like(array, array.flat[0]), equal_nan=array.dtype.kind in "fc")
    )


class Names:
    """The names used in one function."""

    def __init__(self, taken: Iterable[str] = ()):
        self.taken = set(taken)

    def new(self, wish: str) -> str:
        """The name, or the name and a number if it is taken."""
        name, at = identifier(wish), 1
        while name in self.taken:
            at += 1
            name = f"{identifier(wish)}_{at}"
        self.taken.add(name)
        return name


class Function:
    """Statements that compute values, and expressions for them.

    Args:
        names: the names already taken.
        uses: how often each value is read.
        outlined: whether to mark what may differ between otherwise equal functions, so that it can become an argument.
    """

    def __init__(self, names: Names, uses: Counter[Value], outlined: bool = False):
        self.names, self.uses, self.outlined = names, uses, outlined
        self.lines: list[str] = []
        self.marked: list[tuple[str, Any]] = []
        self.known: dict[Value, Expr] = {}

    def write(self, nodes: Sequence[Node]) -> None:
        """Write the statements that compute the nodes' outputs."""
        for node in nodes:
            made = RULES[node.prim](self, node)
            for value, expr in zip(node.outs, made if isinstance(made, list) else [made], strict=True):
                self.known[value] = expr if self._stays(value, expr) else self.assign(value, expr)

    def _stays(self, value: Value, expr: Expr) -> bool:
        return expr.text.isidentifier() or (self.uses[value] <= 1 and len(expr.text) <= GROWS)

    def assign(self, value: Value, expr: Expr) -> Expr:
        """Give an expression a name of its own."""
        wish = "" if self.outlined else value.name
        name = self.names.new(wish or WORDS.get(value.node.prim if value.node else "", "y"))
        self.lines.append(f"{name} = {expr.text}")
        return Expr(name, ATOM, expr.shape, expr.typed)

    def loose(self, value: Value) -> Expr:
        """An expression that broadcasting expands to the value."""
        if value in self.known:
            return self.known[value]
        assert value.constant is not None, value
        array = value.constant
        if not array.size:
            return Expr(f"jnp.zeros({literal(value.shape)}, {dtype_text(array.dtype)})", ATOM, value.shape)
        if _uniform(array):
            text = self.mark("constant", array.flat[0])
            return Expr(text, ATOM, (), False)
        numbers = re.sub(r"\b(nan|inf)\b", r"jnp.\1", str(array.tolist()))
        return Expr(f"jnp.array({numbers}, {dtype_text(array.dtype)})", ATOM, value.shape)

    def tight(self, value: Value, level: int = ATOM) -> str:
        """An expression with exactly the value's shape and dtype."""
        expr = self.loose(value)
        if not expr.typed:
            if value.shape:
                return f"jnp.full({self.mark('shape', value.shape)}, {expr.text}, {dtype_text(value.dtype)})"
            return f"{dtype_text(value.dtype)}({expr.text})"
        if expr.shape == value.shape:
            return expr.at(level)
        missing = len(value.shape) - len(expr.shape)
        if value.shape == (1,) * missing + expr.shape:
            return f"{expr.at(ATOM)}[{', '.join(['None'] * missing)}]"
        return f"jnp.broadcast_to({expr.text}, {self.mark('shape', value.shape)})"

    def mark(self, hint: str, value: Any) -> str:
        """The text of a parameter, or a mark if it may become an argument."""
        text = number_text(value) if isinstance(value, np.generic) else literal(value)
        if not self.outlined:
            return f"({text})" if text.startswith("-") else text
        self.marked.append((hint, value))
        return f"\u27e6{len(self.marked) - 1}\u27e7"

    def size(self, number: Any) -> str:
        """A size; for a symbol, the expression that stands for it here."""
        return str(int(number)) if is_fixed(number) else self.mark("size", number)

    def inner(self, body: Body, given: Sequence[Expr], names: Names) -> Function:
        """A nested function."""
        inside = Function(names, uses_of(body), False)
        inside.known = {**self.known, **dict(zip(body.inputs, given, strict=True))}
        return inside


def uses_of(body: Body) -> Counter[Value]:
    """How often each value is read in a body; reads in nested bodies count twice, so that the value gets a name."""
    counts = Counter(body.outputs)
    for node in body.nodes:
        counts.update(node.ins)
        if node.bodies:
            counts.update(node.ins)
    return counts
