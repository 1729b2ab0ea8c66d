"""From a program to files: trace, write, compile, run, and compare with the Executor."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import Scope
from fluidjax.base.values import LoDTensor
from fluidjax.executor import Executor
from fluidjax.export.c.build import (
    Fetched,
    as_executed,
    compile_c,
    compiler,
    difference,
    load_outputs,
    run_c,
    save_inputs,
)
from fluidjax.export.c.source import Source, check_size, source_of
from fluidjax.export.c.trace import trace
from fluidjax.export.double import in_double
from fluidjax.export.function import ExportError, JaxFunction, from_jax, to_jax
from fluidjax.export.ragged import ragged
from fluidjax.export.sizes import ROOM, levels_of, own_sizes
from fluidjax.framework import Program
from lowering.dtypes import to_numpy
from lowering.engine.x64 import with_x64
from lowering.values import LoDArray

STEM = "model"
STEPS, SEED = 3, 7
MOST_INPUT = 1 << 32
# How far C may differ from the Executor, relative to the largest element. A training step may also differ by 30 times
# what the Executor's own result moves by when every parameter changes by a millionth. Beyond that, the same step in
# float64 decides: a ReLU input of 1e-7 may change sign between the two, and with it the whole gradient behind it.
TOLERANCE, MILLIONTH, MOVES = 1e-5, 1e-6, 30
LAST_DIGIT, NEIGHBOURS = 2.0**-23, 8  # how far neighbouring parameters are in float64, and how many are asked


@dataclass(frozen=True)
class Feed:
    """An input: its rows, and the sequence lengths of each level."""

    rows: np.ndarray
    lengths: tuple[list[int], ...] = ()

    def value(self, room: int) -> Any:
        """The form that a ``to_jax`` function takes, with room for that many rows, in a single sequence if needed."""
        if not self.lengths:
            return self.rows
        value = with_x64(ragged, self.rows, list(self.lengths), room)
        inner = [len(level) - 1 for level in value.lod[1:]]
        return replace(value, longest=(*inner, value.capacity))

    def tensor(self) -> Any:
        """The form that the Executor takes."""
        if not self.lengths:
            return self.rows
        tensor = LoDTensor()
        tensor.set(self.rows, CPUPlace())
        tensor.set_recursive_sequence_lengths([list(level) for level in self.lengths])
        return tensor


def files_of(
    program: Program,
    feeds: Sequence[str],
    fetches: Sequence[str],
    scope: Scope,
    *,
    batch: int = 1,
    rows: int | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    train: bool = False,
    inside: bool | None = None,
    check: bool = True,
) -> dict[str, bytes]:
    """File name -> content: ``model.c``, its weights if they are kept outside, and the executable ``model``.

    Args:
        program, feeds, fetches, scope: as for ``to_jax``.
        batch: replaces sizes that the program leaves open, and gives the number of sequences.
        rows: the maximum number of rows of a ragged input; 16 per sequence by default.
        sizes: input -> sizes of its open dims, which ``batch`` then does not replace.
        train: whether a step updates the parameters that the program writes.
        inside: whether weights are embedded in ``model.c``; None embeds small ones.
        check: whether to compile, run and compare; otherwise no executable is made.

    Raises ExportError, before anything is compiled, for a program with unsupported primitives, and for a
    result that differs from the Executor's.
    """
    if check and compiler() is None:
        compile_c(Path(), Path())
    drawn = draw_feeds(program, feeds, batch, rows, own=own_sizes(program, feeds, sizes or {}))
    function, parameters = to_jax(program, feeds, fetches, scope=scope, platform="cpu")
    given = {name: feed.value(rows or ROOM * batch) for name, feed in drawn.items()}
    source = source_of(trace(function, parameters, given, train), STEM, inside)
    found = {f"{STEM}.c": source.text.encode()}
    if not source.inside:
        found[f"{STEM}.safetensors"] = source.weights
    if check:
        found[STEM] = _checked(program, function, parameters, source, drawn, train)
    return found


def draw_feeds(
    program: Program,
    feeds: Sequence[str],
    batch: int,
    rows: int | None,
    length: int | None = None,
    own: Mapping[str, Mapping[int, int]] | None = None,
) -> dict[str, Feed]:
    """Random values for each input; integers are 0 or 1, since they are often ids.

    Open dims are as ``own`` has them (see ``own_sizes``), or ``batch``; those after the first ``length``, if given.
    """
    rng, block = np.random.default_rng(0), program.global_block()
    each = max((rows or ROOM * batch) // batch, 1)
    same: list[int] = []  # all ragged inputs share their lengths, because ops expect sequences to match
    found = {}
    for name in feeds:
        if not block.has_var(name):
            raise _undeclared(name, block.vars)
        var = block.var(name)
        levels = levels_of(name, var)
        lengths: list[list[int]] = [[1] * batch for _ in range(levels - 1)]
        if levels:
            same = same or [int(n) for n in rng.integers(1, each + 1, batch)]
            lengths.append(same)
        total = sum(lengths[-1]) if levels else batch
        given = (own or {}).get(name, {})
        shape = tuple(
            n if n >= 0 else given.get(at, total if at == 0 else length or batch) for at, n in enumerate(var.shape)
        )
        dtype = to_numpy(int(var.dtype))
        check_size(prod(n or 1 for n in shape) * np.dtype(dtype).itemsize, MOST_INPUT)  # NumPy counts like this
        whole = np.dtype(dtype).kind != "f"
        numbers = rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)
        found[name] = Feed(np.asarray(numbers, dtype), tuple(lengths))
    return found


def _undeclared(name: str, known: Iterable[str]) -> ExportError:
    return ExportError(
        explain(
            f"the program is fed {name!r}, which it does not declare",
            "inputs that are variables of the outermost block",
            f"variables {', '.join(sorted(known)[:8]) or 'none'}",
            "save the model again; its file is damaged",
        )
    )


def _checked(
    program: Program,
    function: JaxFunction,
    parameters: Mapping[str, Any],
    source: Source,
    drawn: Mapping[str, Feed],
    train: bool,
) -> bytes:
    """The executable, once its results match the Executor's; ExportError otherwise."""
    steps = STEPS if train else 1
    executable, found = _compiled(source, drawn, steps)
    expected = executed(program, function, parameters, drawn, steps)
    given = {name: feed.value(len(feed.rows)) for name, feed in drawn.items()}
    judge = Exact(function, parameters, given, SEED)
    moved = executed(program, function, _shaken(parameters), drawn, steps) if train else expected
    for step, (got, want, near) in enumerate(zip(found, expected, moved, strict=True)):
        for output in function.fetches:
            allowed = max(TOLERANCE, MOVES * difference(near[output][0], want[output][0]))
            _compare(judge, step, output, got[output], want[output], allowed)
    return executable


def _compiled(source: Source, drawn: Mapping[str, Feed], steps: int) -> tuple[bytes, list[dict[str, Fetched]]]:
    """The executable, and what it computes in each step."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / f"{STEM}.c").write_text(source.text)
        (folder / f"{STEM}.safetensors").write_bytes(source.weights)
        compile_c(folder / f"{STEM}.c", folder / STEM)
        save_inputs(folder, source.inputs, {n: (f.rows, list(f.lengths)) for n, f in drawn.items()})
        outputs = folder / "outputs"
        outputs.mkdir()
        run_c(folder / STEM, folder, outputs, "--steps", str(steps), "--seed", str(SEED))
        found = [load_outputs(outputs, source.outputs, f".{step}") for step in range(steps)]
        return (folder / STEM).read_bytes(), found


def _compare(judge: Exact, step: int, output: str, found: Fetched, expected: Fetched, allowed: float) -> None:
    """Raise ExportError if an output of a step is further from the Executor's, and from float64's, than is allowed."""
    array, lengths = as_executed(found, expected)
    apart = difference(array, expected[0])
    apart = apart if apart <= allowed else min(apart, judge.distance(step, output, found[0], allowed))
    if lengths != expected[1] or not apart <= allowed:
        raise ExportError(
            explain(
                f"the C program computes another {output!r} than the Executor (step {step})",
                f"a relative difference of at most {allowed:.0e}, {str(expected[0].ravel()[:4])}",
                f"{apart:.1e}, {str(array.ravel()[:4])}",
                "report this; --no-check writes the C file unchecked",
            )
        )


def executed(
    program: Program, function: JaxFunction, parameters: Mapping[str, Any], drawn: Mapping[str, Feed], steps: int
) -> list[dict[str, Fetched]]:
    """What the Executor fetches in each step: name -> (array, lengths by level)."""
    scope, executor = Scope(), Executor(CPUPlace())
    from_jax(parameters, scope)
    program = program.clone()
    program.random_seed = SEED
    feed = {name: value.tensor() for name, value in drawn.items()}
    found = []
    for _ in range(steps):
        values = executor.run(program, feed=feed, fetch_list=list(function.fetches), scope=scope, return_numpy=False)
        named = zip(function.fetches, values, strict=True)
        found.append({name: (np.array(value), value.recursive_sequence_lengths()) for name, value in named})
    return found


class Exact:
    """The steps of a function in float64, run on first use: of its parameters, and of the nearest numbers to them.

    Where a ReLU's input is smaller than what float32 rounds away, both of its sides are right. The step in float64
    takes one of them; from parameters that differ by float32's last digit it takes the other, and no more changes.
    """

    def __init__(self, function: JaxFunction, parameters: Mapping[str, Any], given: Mapping[str, Any], seed: int):
        self._function, self._given, self._seed = function, dict(given), seed
        self._parameters = dict(parameters)
        self._held: dict[int, dict[str, Any]] = {}
        self._done: dict[int, list[dict[str, Any]]] = {}

    def distance(self, step: int, name: str, found: np.ndarray, allowed: float = 0.0) -> float:
        """Distance of a fetched value, or of a parameter after a step, from its float64 value.

        Beyond ``allowed``, if that is given, from the nearest of the float64 values of neighbouring parameters.
        """
        least = np.inf
        for neighbour in range(1 + NEIGHBOURS * (allowed > 0)):
            least = min(least, self._distance(neighbour, step, name, found))
            if least <= allowed:
                break
        return least

    def _distance(self, neighbour: int, step: int, name: str, found: np.ndarray) -> float:
        value = self._values(neighbour, step)[name]
        ragged = isinstance(value, LoDArray)
        rows = int(value.nrows) if ragged and value.nrows is not None else None
        exact = np.asarray(value.data[:rows] if ragged else value)
        return difference(found.astype(exact.dtype) if found.dtype.kind == "f" else found, exact)

    def _values(self, neighbour: int, step: int) -> dict[str, Any]:
        """Everything after a step, where ``neighbour`` 0 begins with the parameters themselves."""
        done = self._done.setdefault(neighbour, [])
        while len(done) <= step:
            held = self._held.get(neighbour) or _shaken(self._parameters, LAST_DIGIT * bool(neighbour), neighbour)
            outputs, held = self._step(held, self._given, np.array([self._seed, len(done)], np.uint32))
            self._held[neighbour] = held
            done.append({**held, **dict(zip(self._function.fetches, outputs, strict=True))})
        return done[step]

    @cached_property
    def _step(self) -> Any:
        return in_double(self._function.step, self._parameters, self._given, np.zeros(2, np.uint32))


def _shaken(parameters: Mapping[str, Any], size: float = MILLIONTH, seed: int = 1) -> dict[str, Any]:
    """Every parameter perturbed by about ``size`` of itself, in float64 where float32 would round that away."""
    rng = np.random.default_rng(seed)

    def shaken(leaf: Any) -> Any:
        array = np.asarray(leaf)
        if array.dtype.kind != "f":
            return leaf
        moved = array * (1 + size * rng.standard_normal(array.shape))
        return moved if size < MILLIONTH else moved.astype(array.dtype)

    return jax.tree_util.tree_map(shaken, dict(parameters))
