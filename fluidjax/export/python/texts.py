"""Pieces of Python: expressions with their precedence, and literals."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jax import lax

from lowering.symbols import is_symbol

# Precedence levels, loosest first.
CHOICE, COMPARE, OR, XOR, AND, SHIFT, SUM, PRODUCT, SIGN, POWER, ATOM = range(11)
WIDTH = 110
_TAKEN = {*keyword.kwlist, *keyword.softkwlist, "jax", "jnp", "lax", "np", "p", "key"}


@dataclass(frozen=True)
class Expr:
    """An expression for a value.

    Attributes:
        text, level: the Python text and its precedence.
        shape: its own shape, which is the value's or broadcasts to it.
        typed: whether it has the value's dtype by itself; a Python number does not.
    """

    text: str
    level: int
    shape: tuple[Any, ...]
    typed: bool = True

    def at(self, level: int) -> str:
        """The text, in parentheses if ``level`` demands them."""
        return self.text if self.level >= level else f"({self.text})"


def identifier(name: str) -> str:
    """A Python identifier that resembles a variable's name."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:60] or "value"
    word = f"v{word}" if word[0].isdigit() else word
    return f"{word}_" if word in _TAKEN else word


def dtype_text(dtype: Any) -> str:
    """``jnp.float32``."""
    name = np.dtype(dtype).name
    return f"jnp.{'bool_' if name == 'bool' else name}"


def number_text(number: Any) -> str:
    """The shortest text that reads back as the same number."""
    item = np.asarray(number)
    if item.dtype.kind in "iub":
        return str(item.item())
    if item.dtype.kind == "c":
        return repr(complex(item))
    value = float(item)
    if np.isnan(value):
        return "jnp.nan"
    if np.isinf(value):
        return "jnp.inf" if value > 0 else "-jnp.inf"
    text = str(item.astype(np.float64) if item.dtype == np.float64 else item.astype(np.float32))
    return text if float(np.asarray(text, item.dtype)) == value else repr(value)


def is_size(value: Any) -> bool:
    """Whether a dim is a number."""
    return isinstance(value, (int, np.integer))


def is_fixed(value: Any) -> bool:
    """Whether a parameter's sizes contain no symbol."""
    if isinstance(value, (tuple, list)):
        return all(is_fixed(v) for v in value)
    return not is_symbol(value)


class _Operators(ast.NodeTransformer):
    """JAX's calls in the text of a symbol, as Python's operators."""

    _NAMES: ClassVar[dict[str, type[ast.operator]]] = {"floordiv": ast.FloorDiv, "mod": ast.Mod}

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """``floordiv(a, 2)`` is ``a // 2``."""
        self.generic_visit(node)
        kind = self._NAMES.get(node.func.id) if isinstance(node.func, ast.Name) else None
        return ast.BinOp(node.args[0], kind(), node.args[1]) if kind else node


def symbol_text(size: Any) -> str:
    """A symbolic size as Python."""
    return ast.unparse(_Operators().visit(ast.parse(str(size).replace("^", "**"), mode="eval")))


def literal(value: Any) -> str:
    """A primitive's parameter as a literal."""
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        items = [literal(v) for v in value]
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return dtype_text(value)
    if isinstance(value, lax.ConvDimensionNumbers):
        return literal(_convolution(value))
    if isinstance(value, (lax.GatherDimensionNumbers, lax.ScatterDimensionNumbers)):
        return f"lax.{value!r}"
    if isinstance(value, lax.GatherScatterMode):
        return repr({"CLIP": "clip", "FILL_OR_DROP": "fill"}.get(value.name, "promise_in_bounds"))
    if isinstance(value, lax.RoundingMethod):
        return f"lax.RoundingMethod.{value.name}"
    if isinstance(value, lax.Precision):
        return repr(value.name.lower())
    if isinstance(value, (float, np.floating)):
        return number_text(value)
    if is_symbol(value):
        return symbol_text(value)
    return str(value) if not isinstance(value, str) else repr(value)


def _convolution(numbers: Any) -> tuple[str, str, str]:
    """The layouts as letters: ('NCHW', 'OIHW', 'NCHW')."""
    rank = len(numbers.lhs_spec)
    spatial = "DHW"[5 - rank :] if rank <= 5 else "0123456"[: rank - 2]

    def letters(spec: Sequence[int], first: str) -> str:
        words = dict(zip(spec, first + spatial, strict=True))
        return "".join(words[i] for i in range(rank))

    return letters(numbers.lhs_spec, "NC"), letters(numbers.rhs_spec, "OI"), letters(numbers.out_spec, "NC")


def call(function: str, arguments: Iterable[str]) -> str:
    """``function(a, b)``."""
    return f"{function}({', '.join(arguments)})"


def lines_of(statement: str, indent: int) -> list[str]:
    """A statement as lines; if a call is too wide, each argument gets a line of its own."""
    space = " " * indent
    if indent + len(statement) <= WIDTH:
        return [space + statement]
    opened = _opening(statement.rstrip(":"))
    if opened < 0:
        return [space + statement]
    end = statement[len(statement.rstrip(":")) :]
    text = statement[opened + 1 : len(statement) - len(end) - 1]
    inner = split_top(text)
    # A comma after what brackets only hold together would make it a tuple.
    comma = "" if len(inner) == 1 and not text.rstrip().endswith(",") else ","
    parts = [lines_of(part, indent + 4) for part in inner]
    body = [line for part in parts for line in (*part[:-1], part[-1] + comma)]
    return [f"{space}{statement[: opened + 1]}", *body, f"{space}){end}"]


def _opening(text: str) -> int:
    """The position of the bracket that the last character closes; -1 if it closes none."""
    open_at = [-1]
    for at, c in enumerate(_blanked(text)):
        if c in "([{":
            open_at.append(at)
        elif c in ")]}":
            last = open_at.pop()
            if at == len(text) - 1:
                return last if c == ")" else -1
    return -1


def _blanked(text: str) -> str:
    """The text with its strings blanked out."""
    return re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", lambda m: " " * len(m[0]), text)


def split_top(text: str) -> list[str]:
    """The parts between top-level commas, outside brackets and strings."""
    parts, depth, start = [], 0, 0
    for at, c in enumerate(_blanked(text)):
        if c == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
        else:
            depth += (c in "([{") - (c in ")]}")
    return [part for part in (*parts, text[start:].strip()) if part]
