"""The sizes of inputs that a program leaves open: numbers that its user gives, or symbols."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
from jax import export

from fluidjax.base.errors import explain
from fluidjax.export.function import ExportError
from fluidjax.framework import Program
from lowering.dtypes import to_numpy

LENGTHS = [32, 16]  # of open dims after the first in a comparison: room enough for the windows of an image network
ROOM = 16  # rows per sequence, if a number of sequences is given and no number of rows
MOST_LEVELS = 8  # of the LoD of an input
LEAST_ROWS = 64  # of an input whose number of rows is a symbol: rows beyond the last sequence are padding

Shapes = dict[str, Any]  # of an input: a ShapeDtypeStruct; of a ragged one {"data": one, "lod": one per level}


@dataclass(frozen=True)
class Given:
    """The sizes that a user gives for what a program leaves open.

    Attributes:
        batch: of first dims, and the number of sequences; None if it stays open.
        rows: the number of rows that a ragged input has room for; None: it stays open, or 16 per sequence of ``batch``.
        own: input -> sizes of its open dims, in order; a ragged input's rows are not one of them.
    """

    batch: int | None = None
    rows: int | None = None
    own: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def room(self) -> int | None:
        """The number of rows of a ragged input; None if it stays open."""
        return self.rows if self.rows is not None or self.batch is None else ROOM * self.batch


class _Form(NamedTuple):
    """How open sizes after the first are written: whether inputs share symbols, how small they may be, what divides."""

    shared: bool = False
    least: int = 0
    times: int = 1

    @property
    def lengths(self) -> list[int]:
        """Sizes for comparisons."""
        return LENGTHS if self.times == 1 else [self.times, 2 * self.times]


_FORMS = (_Form(), _Form(shared=True), _Form(shared=True, least=16), _Form(shared=True, times=32))


def open_dims(var: Any) -> list[int]:
    """The dims of an input whose sizes are its own to give: the number of a ragged input's rows is not."""
    return [at for at, size in enumerate(var.shape) if size < 0 and not (at == 0 and var.lod_level)]


def levels_of(name: str, var: Any) -> int:
    """The LoD levels of an input. ExportError for more than programs have, and for sequences without rows."""
    levels = int(var.lod_level or 0)
    if not 0 <= levels <= MOST_LEVELS or (levels and not var.shape):
        raise ExportError(
            explain(
                f"input {name!r} cannot be of ragged sequences",
                f"at most {MOST_LEVELS} LoD levels, and a dim of rows",
                f"{levels} LoD levels of shape {list(var.shape)}",
                "save the model again; its file is damaged",
            )
        )
    return levels


def own_sizes(program: Program, feeds: Sequence[str], own: Mapping[str, Sequence[int]]) -> dict[str, dict[int, int]]:
    """Input -> dim -> the size given for it. ExportError for other inputs, and for another number of sizes."""
    variables, found = program.global_block().vars, {}
    for name, sizes in own.items():
        dims = open_dims(variables[name]) if name in feeds and name in variables else None
        if dims is None or len(dims) != len(sizes):
            raise ExportError(
                explain(
                    f"sizes are given for {name!r}",
                    f"one of the inputs {list(feeds)}" if dims is None else f"{len(dims)}, of its dims {dims}",
                    f"{','.join(map(str, sizes))}",
                    f"--size {name if dims else 'INPUT'}=N,N with a number for each dim that the model leaves open",
                )
            )
        found[name] = dict(zip(dims, sizes, strict=True))
    return found


def with_sizes(program: Program, feeds: Sequence[str], given: Given, write: Callable[[Shapes, list[int]], Any]) -> Any:
    """What ``write`` makes of the inputs' shapes, with a symbol for each open size; of the first form that it can take.

    ``write`` is also told sizes to compare at. Whether two inputs have to be equally long (the ids and the segments of
    a text), to have room for a window, or to be halved and doubled back (the images of a detector), is known to the
    program alone: tried are a symbol for each size, one for each axis, one of at least 16, and one times 32.
    """
    forms: dict[tuple[str, int], tuple[Shapes, list[int]]] = {}
    for form in _FORMS:
        shapes = _shapes(program, feeds, given, form)
        forms.setdefault((str(shapes), form.least), (shapes, form.lengths))
    refused: list[ExportError] = []
    for shapes, lengths in forms.values():
        try:
            with _symbols_refused(shapes):
                return write(shapes, lengths)
        except ExportError as error:
            refused.append(error)
    raise refused[-1]


def _shapes(program: Program, feeds: Sequence[str], given: Given, form: _Form) -> Shapes:
    variables, own = program.global_block().vars, own_sizes(program, feeds, given.own)
    words: dict[str, list[list[str]]] = {}
    for name in feeds:
        var = variables[name]
        levels = levels_of(name, var)
        dims = _words(name, var, given, own.get(name, {}), form)
        words[name] = [dims, *_offsets(name, levels, given, form)]
    after = {w.rpartition("*")[2] for parts in words.values() for w in parts[0][1:] if not w.isdigit()}
    least = [f"{word} >= {form.least}" for word in sorted(after)] if form.least else []
    firsts = {words[name][0][0] for name in feeds if variables[name].lod_level}
    least += [f"{word} >= {LEAST_ROWS}" for word in sorted(firsts) if not word.isdigit()]
    scope = export.SymbolicScope(least)

    def shape(parts: list[str], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(export.symbolic_shape(", ".join(parts), scope=scope) if parts else (), dtype)

    found: Shapes = {}
    for name, (dims, *counts) in words.items():
        data = shape(dims, to_numpy(int(variables[name].dtype)))
        found[name] = {"data": data, "lod": [shape(count, "int32") for count in counts]} if counts else data
    return found


def _words(name: str, var: Any, given: Given, own: Mapping[int, int], form: _Form) -> list[str]:
    """The size of each dim of an input, or of its rows, as a number or a symbol."""
    ragged, words = bool(var.lod_level), []
    for at, size in enumerate(var.shape):
        first = ragged and at == 0
        known = given.room if first else size if size >= 0 else own.get(at, given.batch)
        words.append(_symbol(name, at, ragged, form) if known is None else str(known))
    return words


def _offsets(name: str, levels: int, given: Given, form: _Form) -> list[list[str]]:
    """The number of offsets of each level: one more than there are sequences, of inner levels as many as rows."""
    if not levels:
        return []
    parts = "parts" if form.shared else f"{_word(name)}_parts"
    inner = [f"{parts}_{at} + 1" if given.room is None else str(given.room + 1) for at in range(1, levels)]
    return [["batch + 1" if given.batch is None else str(given.batch + 1)], *([count] for count in inner)]


def _symbol(name: str, at: int, ragged: bool, form: _Form) -> str:
    if at == 0:
        return "batch" if not ragged else "rows" if form.shared else f"{_word(name)}_rows"
    word = "size" if form.shared else _word(name)
    return f"{word}_{at}" if form.times == 1 else f"{form.times}*{word}_{at}"


def _word(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


@contextlib.contextmanager
def _symbols_refused(shapes: Shapes) -> Iterator[None]:
    """What fails where sizes are symbols is said to be their fault; the model itself runs with sizes of any number."""
    leaves = jax.tree_util.tree_leaves(shapes)
    try:
        yield
    except Exception as error:
        if isinstance(error, ExportError) or all(isinstance(n, int) for leaf in leaves for n in leaf.shape):
            raise
        ragged = any(isinstance(shape, dict) for shape in shapes.values())
        raise ExportError(
            explain(
                f"the program does not allow a symbolic batch: {str(error).strip().splitlines()[0]}",
                "ops whose shapes are sums and products of the batch's size",
                ", ".join(f"{name} {told(shape)}" for name, shape in shapes.items()),
                f"fix the batch: --batch N{' --rows N' if ragged else ''}",
            )
        ) from error


def told(shape: Any) -> Any:
    """Sizes as text, in lists: of an input, or of the parts of a ragged one."""
    if isinstance(shape, dict):
        return {"data": told(shape["data"]), "lod": [told(level) for level in shape["lod"]]}
    return [str(size) for size in shape.shape]
