"""The module's text: docstring, imports, functions, and how arrays become inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.tree_util import keystr, tree_flatten_with_path, tree_leaves, tree_map

from fluidjax.base.errors import explain
from fluidjax.export.c.trace import labelled, op_of
from fluidjax.export.function import ExportError, JaxFunction
from fluidjax.export.graph import Body, Value, graph_of, walk
from fluidjax.export.python import arithmetic, arrays, control, linalg
from fluidjax.export.python.functions import RULES, Names, large
from fluidjax.export.python.module import Module, quoted
from fluidjax.export.python.texts import ATOM, Expr, identifier, is_size, lines_of
from lowering import symbols
from lowering.engine.runner import Runner
from lowering.engine.x64 import with_x64
from lowering.program import OpView
from lowering.values import LoDArray

assert arithmetic and arrays and control and linalg
_WIDE = ("int64", "uint64", "float64")


class _Named(Runner):
    """Labels everything an op becomes with the op, and each value with its variable."""

    def run_op(self, op: OpView, env: Any) -> dict[str, Any]:
        with labelled(op):
            found = super().run_op(op, env)
        return {name: tree_map(partial(_named, name), value) for name, value in found.items()}


def _named(name: str, leaf: Any) -> Any:
    plain = isinstance(leaf, jax.core.Tracer) and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return symbols.same(checkpoint_name(leaf, name), leaf) if plain else leaf


@dataclass
class Written:
    """A module, its weights, and how arrays become its inputs and outputs."""

    text: str
    weights: dict[str, np.ndarray]
    outputs: list[list[str]]


def write(function: JaxFunction, parameters: Mapping[str, Any], feeds: Mapping[str, Any], name: str) -> Written:
    """A function as the text of a module.

    Args:
        function, parameters: as ``to_jax`` returns them.
        feeds: name -> array, ragged value or jax.ShapeDtypeStruct.
        name: the model's name in the docstring.
    """
    function = function.with_runner(_Named)
    order = {n: feeds[n] for n in function.feeds}
    held = {n: parameters[n] for n in sorted(parameters)}

    def run(weights: Any, inputs: Any, key: Any) -> Any:
        return function(weights, inputs, key)

    closed, shapes = with_x64(jax.make_jaxpr(run, return_shape=True), held, order, np.zeros(2, np.uint32))
    body = graph_of(closed, "")
    _check(function, body)
    inputs = iter(body.inputs)
    weights, known = _weights(held, inputs, body)
    arguments, given = _arguments(order, inputs)
    key = next(inputs)
    known |= {**given, key: Expr("key", ATOM, key.shape)}
    opening = [f"{', '.join(a.leaves)} = {a.word}" for a in arguments if len(a.leaves) > 1]
    arguments.sort(key=lambda argument: function.feeds.index(argument.name))
    opening += _symbols(order, arguments)
    taken = [leaf for a in arguments for leaf in a.leaves] + [line.partition(" = ")[0] for line in opening]
    module = Module(body, known, lambda node: op_of(function, node), taken)
    weights.update(module.constants)
    page = Page(name, function.fetches, arguments, opening, module, shapes, random=_reads(body, key), wide=_wide(body))
    return Written(page.text(), weights, [[keystr(p) for p, _ in tree_flatten_with_path(s)[0]] for s in shapes])


class Argument(NamedTuple):
    """An input of the module: its variable, its parameter, its value or form, and the name of each of its arrays."""

    name: str
    word: str
    tree: Any
    leaves: list[str]


def _weights(
    held: Mapping[str, Any], inputs: Iterator[Value], body: Body
) -> tuple[dict[str, np.ndarray], dict[Value, Expr]]:
    """The parameters that the body reads, and what each is in the module's text."""
    weights: dict[str, np.ndarray] = {}
    known: dict[Value, Expr] = {}
    for name, tree in held.items():
        for path, leaf in tree_flatten_with_path(tree)[0]:
            value = next(inputs)
            value.name = name
            if _reads(body, value):
                weights[name + keystr(path)] = np.asarray(leaf)
                known[value] = Expr(f"p[{quoted(name + keystr(path))}]", ATOM, value.shape)
    return weights, known


def _arguments(order: Mapping[str, Any], inputs: Iterator[Value]) -> tuple[list[Argument], dict[Value, Expr]]:
    """The inputs by name, and what each of their arrays is in the module's text."""
    arguments: list[Argument] = []
    known: dict[Value, Expr] = {}
    names = Names()
    for name, tree in sorted(order.items()):
        word = names.new(name)
        leaves = [_word(word, keystr(path)) for path, _ in tree_flatten_with_path(tree)[0]]
        for leaf in leaves:
            value = next(inputs)
            value.name = value.name or name
            known[value] = Expr(leaf, ATOM, value.shape)
        arguments.append(Argument(name, word, tree, leaves))
    return arguments, known


def _reads(body: Body, value: Value) -> bool:
    return value in body.outputs or any(value in node.ins for node in walk(body))


def _wide(body: Body) -> bool:
    """Whether the module needs 64-bit types."""
    values = [*body.inputs, *(v for node in walk(body) for v in (*node.ins, *node.outs))]
    return any(v.dtype.name in _WIDE and (v.constant is None or large(v)) for v in values)


def _check(function: JaxFunction, body: Body) -> None:
    found: dict[str, None] = {}
    for node in walk(body):
        if node.prim not in RULES:
            op = op_of(function, node)
            found[f"{op.place() if op is not None else 'the inputs and outputs'}: {node.prim}"] = None
    if found:
        raise ExportError(
            explain(
                "the program has primitives that are not written as Python",
                f"the {len(RULES)} that there are rules for",
                "".join(f"\n    {line}" for line in found),
                "fetch what does not depend on these ops, or convert to stablehlo",
            )
        )


def _word(name: str, path: str) -> str:
    return {".data": name, ".nrows": f"{name}_rows"}.get(path, identifier(f"{name}_{path}") if path else name)


def _symbols(order: Mapping[str, Any], arguments: Sequence[Argument]) -> list[str]:
    """``batch = x.shape[0]`` for each symbol; of one that stands for a part of a size, that it is whole."""
    found: dict[str, str] = {}
    checks: list[str] = []
    for name, word, *_ in arguments:
        for at, size in enumerate(getattr(order[name], "shape", ())):
            times, _, symbol = str(size).rpartition("*")
            if is_size(size) or not symbol.isidentifier():
                continue
            here = f"{word}.shape[{at}]"
            found.setdefault(symbol, f"{symbol} = {here} // {times}" if times else f"{symbol} = {here}")
            if times:
                told = f'f"size {at} of {word} is {{{here}}}; expected a multiple of {times}; pad it"'
                checks += [f"if {here} % {times}:", f"    raise ValueError({told})"]
    return [*found.values(), *checks]


@dataclass
class Page:
    """All that the module's text says.

    Attributes:
        name: the model's.
        fetches: the outputs' names, and ``shapes`` their forms.
        arguments: the inputs, as the function takes them.
        opening: the lines that take them apart, and name their sizes.
        module: the function's lines, and the helpers that it calls.
        random: whether it takes a key.
        wide: whether it needs 64-bit types.
    """

    name: str
    fetches: Sequence[str]
    arguments: Sequence[Argument]
    opening: list[str]
    module: Module
    shapes: Any
    random: bool
    wide: bool

    def text(self) -> str:
        """The module."""
        outputs = self._outputs()
        steps = self._steps(outputs)
        helpers = [line for helper in self.module.helpers.values() for line in ["", "", *helper.text()]]
        signature = ", ".join(["p", *(a.word for a in self.arguments), *(["key"] if self.random else [])])
        main = ["", "", f"def predict({signature}):", '    """The outputs, in order."""', *steps]
        main += lines_of(f"return {', '.join(outputs)}", 4)
        head = self._head("\n".join([*steps, *outputs, *helpers]))
        return "\n".join([*self._said(), *head, *_LOAD.splitlines(), *self._ragged(), *helpers, *main]) + "\n"

    def _said(self) -> list[str]:
        """The docstring."""
        said = [f'"""{_plain(self.name)}: a Fluid program as JAX, written by fluidjax.', "", "Inputs:"]
        said += [f"    {a.word}: {_form(a.tree)}" for a in self.arguments]
        each = zip(self.fetches, self.shapes, strict=True)
        said += ["", "Outputs:", *(f"    {_plain(n)}: {_form(s)}" for n, s in each)]
        return [*said, "", 'The parameters are in weights.npz, under Fluid\'s names: predict(load(), ...)."""', ""]

    def _head(self, body: str) -> list[str]:
        head = ["from pathlib import Path", "", "import jax", "import jax.numpy as jnp", "import numpy as np"]
        head += ["from jax import lax"] if "lax." in body.replace("jax.", "") else []
        if self.wide:
            head += ["", 'jax.config.update("jax_enable_x64", True)  # whole numbers are 64 bits wide, as Fluid\'s']
        return head

    def _outputs(self) -> list[str]:
        """What the function returns for each output."""
        outputs, left = [], iter(self.module.outputs)
        for shape in self.shapes:
            words = [next(left) for _ in tree_leaves(shape)]
            outputs.append(words[0] if len(words) == 1 else f"({', '.join(words)})")
        return outputs

    def _steps(self, outputs: Sequence[str]) -> list[str]:
        """The function's lines, without those that name a size which no other line reads."""
        steps = [line for text in self.opening for line in lines_of(text, 4)] + self.module.lines()
        if self.random:
            steps.insert(0, "    key = jax.random.key_data(key)")
        for line in self.opening:
            word = line.partition(" = ")[0]
            if word == line or not word.isidentifier():
                continue
            symbol = re.compile(rf"\b{word}\b")
            if not any(symbol.search(other) for other in [*(s for s in steps if s.strip() != line), *outputs]):
                steps.remove(f"    {line}")
        return steps

    def _ragged(self) -> list[str]:
        """How ragged inputs are made, if there are any."""
        found = [a for a in self.arguments if len(a.leaves) > 1]
        lines = _RAGGED.splitlines() if found else []
        for a in found:
            sizes = [int(level.shape[0]) - 1 for level in a.tree.lod]
            lines += ["", f"# {a.word}: ragged(rows, *lengths, capacity={a.tree.data.shape[0]}, sequences={sizes})"]
        return lines


_LOAD = '''

def load(path=Path(__file__).with_name("weights.npz")):
    """The parameters, by name."""
    with np.load(path) as weights:
        return {name: jnp.asarray(weights[name]) for name in weights.files}'''
_RAGGED = '''

def ragged(rows, *lengths, capacity, sequences):
    """Rows of sequences as an input: padded with copies of the last one, the offsets of each level, and their number.

    One compiled function serves all inputs of at most ``capacity`` rows and ``sequences`` sequences by level.
    """
    rows = np.asarray(rows)
    data = rows[np.minimum(np.arange(capacity), len(rows) - 1)]
    offsets = []
    for level, room in zip(lengths, sequences):
        ends = np.cumsum([0, *level], dtype=np.int32)
        offsets.append(ends[np.minimum(np.arange(room + 1), len(ends) - 1)])
    return (data, *offsets, np.int32(len(rows)))'''


def _plain(text: str) -> str:
    """Text that is safe inside a docstring."""
    return "".join(c if c.isprintable() and c not in '"\\' else "?" for c in text)


def _form(tree: Any) -> str:
    if isinstance(tree, LoDArray):
        rest = ", ".join(map(str, tree.data.shape[1:]))
        return f"{tree.data.dtype}[rows, {rest}], ragged: (rows, offsets of {len(tree.lod)} levels, number of rows)"
    leaves = tree_leaves(tree)
    return ", ".join(f"{leaf.dtype}[{', '.join(map(str, leaf.shape))}]" for leaf in leaves)
