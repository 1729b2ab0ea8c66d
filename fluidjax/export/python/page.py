"""The module's text: docstring, imports, functions, and how arrays become inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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
    known: dict[Value, Expr] = {}
    weights: dict[str, np.ndarray] = {}
    for n, tree in held.items():
        for path, leaf in tree_flatten_with_path(tree)[0]:
            value = next(inputs)
            value.name = n
            if _reads(body, value):
                weights[n + keystr(path)] = np.asarray(leaf)
                known[value] = Expr(f"p[{quoted(n + keystr(path))}]", ATOM, value.shape)
    arguments, opening, names = [], [], Names()
    for n, tree in sorted(order.items()):
        word = names.new(n)
        leaves = [_word(word, keystr(path)) for path, _ in tree_flatten_with_path(tree)[0]]
        values = [next(inputs) for _ in leaves]
        for leaf, value in zip(leaves, values, strict=True):
            value.name = value.name or n
            known[value] = Expr(leaf, ATOM, value.shape)
        arguments.append((n, word, tree, leaves))
        if len(leaves) > 1:
            opening.append(f"{', '.join(leaves)} = {word}")
    key = next(inputs)
    known[key] = Expr("key", ATOM, key.shape)
    arguments.sort(key=lambda item: function.feeds.index(item[0]))
    opening += _symbols(order, arguments)
    taken = [leaf for *_, leaves in arguments for leaf in leaves] + [line.partition(" = ")[0] for line in opening]
    module = Module(body, known, lambda node: op_of(function, node), taken)
    weights.update(module.constants)
    text = _text(name, function, arguments, opening, module, shapes, _reads(body, key), _wide(body))
    return Written(text, weights, [[keystr(p) for p, _ in tree_flatten_with_path(s)[0]] for s in shapes])


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


def _symbols(order: Mapping[str, Any], arguments: Sequence[tuple[str, str, Any, list[str]]]) -> list[str]:
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


def _text(
    name: str,
    function: JaxFunction,
    arguments: Sequence[tuple[str, str, Any, list[str]]],
    opening: list[str],
    module: Module,
    shapes: Any,
    random: bool,
    wide: bool,
) -> str:
    said = [f'"""{_plain(name)}: a Fluid program as JAX, written by fluidjax.', "", "Inputs:"]
    said += [f"    {word}: {_form(tree)}" for _, word, tree, _ in arguments]
    said += ["", "Outputs:", *(f"    {_plain(n)}: {_form(s)}" for n, s in zip(function.fetches, shapes, strict=True))]
    said += ["", 'The parameters are in weights.npz, under Fluid\'s names: predict(load(), ...)."""', ""]
    head = ["from pathlib import Path", "", "import jax", "import jax.numpy as jnp", "import numpy as np"]
    lines = [line for helper in module.helpers.values() for line in ["", "", *helper.text()]]
    steps = [line for text in opening for line in lines_of(text, 4)] + module.lines()
    if random:
        steps.insert(0, "    key = jax.random.key_data(key)")
    outputs, at = [], 0
    for shape in shapes:
        count = len(tree_leaves(shape))
        words = module.outputs[at : at + count]
        outputs.append(words[0] if count == 1 else f"({', '.join(words)})")
        at += count
    signature = ", ".join(["p", *(word for _, word, *_ in arguments), *(["key"] if random else [])])
    unused = [line for line in opening if " = " in line and line.split(" = ")[0].isidentifier()]
    body = "\n".join([*steps, *outputs, *lines])
    for line in unused:
        symbol = re.compile(rf"\b{line.split(' = ')[0]}\b")
        if not any(symbol.search(other) for other in [*(s for s in steps if s.strip() != line), *outputs]):
            steps.remove(f"    {line}")
    head += ["from jax import lax"] if "lax." in body.replace("jax.", "") else []
    if wide:
        head += ["", 'jax.config.update("jax_enable_x64", True)  # whole numbers are 64 bits wide, as Fluid\'s']
    ragged = _RAGGED.splitlines() if any(len(leaves) > 1 for *_, leaves in arguments) else []
    for _, word, tree, leaves in arguments:
        if len(leaves) > 1:
            sizes = [int(level.shape[0]) - 1 for level in tree.lod]
            ragged += ["", f"# {word}: ragged(rows, *lengths, capacity={tree.data.shape[0]}, sequences={sizes})"]
    main = ["", "", f"def predict({signature}):", '    """The outputs, in order."""', *steps]
    main += lines_of(f"return {', '.join(outputs)}", 4)
    return "\n".join([*said, *head, *_LOAD.splitlines(), *ragged, *lines, *main]) + "\n"


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
