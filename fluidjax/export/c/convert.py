"""From a program to files: traced, written, compiled, run, and compared with the Executor."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
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
from fluidjax.export.c.build import compile_c, compiler, difference, load_outputs, run_c, save_inputs
from fluidjax.export.c.source import Source, check_size, source_of
from fluidjax.export.c.trace import trace
from fluidjax.export.double import in_double
from fluidjax.export.function import ExportError, JaxFunction, from_jax, to_jax
from fluidjax.export.ragged import ragged
from fluidjax.framework import Program
from lowering.dtypes import to_numpy
from lowering.engine.x64 import with_x64
from lowering.values import LoDArray

STEM = "model"
STEPS, SEED = 3, 7
MOST_INPUT = 1 << 32
# What C may differ by from the Executor, relative to the largest element; a training step besides by 30 times what
# the Executor's own result moves by when every parameter is changed by a millionth. Where they differ by more, the same
# step in float64 is the judge: a ReLU's input that is 1e-7 has another sign in each, and its whole gradient with it.
TOLERANCE, MILLIONTH, MOVES = 1e-5, 1e-6, 30


@dataclass(frozen=True)
class Feed:
    """An input: its rows, and the lengths of its sequences by level."""

    rows: np.ndarray
    lengths: tuple[list[int], ...] = ()

    def value(self, room: int) -> Any:
        """As a function made by ``to_jax`` takes it, with room for that many rows, in one sequence if need be."""
        if not self.lengths:
            return self.rows
        value = with_x64(ragged, self.rows, list(self.lengths), room)
        inner = [len(level) - 1 for level in value.lod[1:]]
        return replace(value, longest=(*inner, value.capacity))

    def tensor(self) -> Any:
        """As the Executor takes it."""
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
    train: bool = False,
    inside: bool | None = None,
    check: bool = True,
) -> dict[str, bytes]:
    """File name -> content: ``model.c``, its weights where they are not inside, and the executable ``model``.

    Args:
        program, feeds, fetches, scope: as for ``to_jax``.
        batch: what stands for sizes that the program leaves open, and the number of sequences.
        rows: the most rows of a ragged input; default 16 for each sequence.
        train: whether a step replaces the parameters that the program writes.
        inside: whether the weights are part of ``model.c``; None: small ones.
        check: whether to compile, run and compare; without it there is no executable.

    Raises ExportError, before anything is compiled, for a program with primitives that are not covered, and for a
    result that differs from the Executor's.
    """
    if check and compiler() is None:
        compile_c(Path(), Path())
    drawn = draw_feeds(program, feeds, batch, rows)
    function, parameters = to_jax(program, feeds, fetches, scope=scope, platform="cpu")
    given = {name: feed.value(rows or 16 * batch) for name, feed in drawn.items()}
    source = source_of(trace(function, parameters, given, train), STEM, inside)
    found = {f"{STEM}.c": source.text.encode()}
    if not source.inside:
        found[f"{STEM}.safetensors"] = source.weights
    if check:
        found[STEM] = _checked(program, function, parameters, source, drawn, train)
    return found


def draw_feeds(program: Program, feeds: Sequence[str], batch: int, rows: int | None) -> dict[str, Feed]:
    """Numbers for each input; integers are 0 and 1, as they often are ids."""
    rng, block = np.random.default_rng(0), program.global_block()
    each = max((rows or 16 * batch) // batch, 1)
    same: list[int] = []  # the lengths of all ragged inputs: ops want sequences side by side
    found = {}
    for name in feeds:
        var = block.var(name)
        levels = int(var.lod_level or 0)
        lengths: list[list[int]] = [[1] * batch for _ in range(levels - 1)]
        if levels:
            same = same or [int(n) for n in rng.integers(1, each + 1, batch)]
            lengths.append(same)
        total = sum(lengths[-1]) if levels else batch
        shape = tuple(total if at == 0 and n < 0 else batch if n < 0 else n for at, n in enumerate(var.shape))
        dtype = to_numpy(int(var.dtype))
        check_size(prod(shape) * np.dtype(dtype).itemsize, MOST_INPUT)
        whole = np.dtype(dtype).kind != "f"
        numbers = rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)
        found[name] = Feed(np.asarray(numbers, dtype), tuple(lengths))
    return found


def _checked(
    program: Program,
    function: JaxFunction,
    parameters: Mapping[str, Any],
    source: Source,
    drawn: Mapping[str, Feed],
    train: bool,
) -> bytes:
    """The executable, when it computes what the Executor computes. ExportError otherwise."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / f"{STEM}.c").write_text(source.text)
        (folder / f"{STEM}.safetensors").write_bytes(source.weights)
        compile_c(folder / f"{STEM}.c", folder / STEM)
        save_inputs(folder, source.inputs, {n: (f.rows, list(f.lengths)) for n, f in drawn.items()})
        outputs = folder / "outputs"
        outputs.mkdir()
        steps = STEPS if train else 1
        run_c(folder / STEM, folder, outputs, "--steps", str(steps), "--seed", str(SEED))
        found = [load_outputs(outputs, source.outputs, f".{step}") for step in range(steps)]
        executable = (folder / STEM).read_bytes()
    expected = executed(program, function, parameters, drawn, steps)
    given = {name: feed.value(len(feed.rows)) for name, feed in drawn.items()}
    judge = Exact(function, parameters, given, SEED)
    moved = executed(program, function, _shaken(parameters), drawn, steps) if train else expected
    for step, (got, want, near) in enumerate(zip(found, expected, moved, strict=True)):
        for output in function.fetches:
            allowed = max(TOLERANCE, MOVES * difference(near[output][0], want[output][0]))
            apart = difference(got[output][0], want[output][0])
            apart = apart if apart <= allowed else min(apart, judge.distance(step, output, got[output][0]))
            if got[output][1] != want[output][1] or not apart <= allowed:
                raise ExportError(
                    explain(
                        f"the C program computes another {output!r} than the Executor (step {step})",
                        f"a relative difference of at most {allowed:.0e}, {str(want[output][0].ravel()[:4])}",
                        f"{apart:.1e}, {str(got[output][0].ravel()[:4])}",
                        "report this; --no-check writes the C file unchecked",
                    )
                )
    return executable


def executed(
    program: Program, function: JaxFunction, parameters: Mapping[str, Any], drawn: Mapping[str, Feed], steps: int
) -> list[dict[str, tuple[np.ndarray, list[list[int]]]]]:
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
    """The steps of a function in float64, run when they are first asked for."""

    def __init__(self, function: JaxFunction, parameters: Mapping[str, Any], given: Mapping[str, Any], seed: int):
        self._function, self._given, self._seed = function, dict(given), seed
        self._held = dict(parameters)
        self._done: list[dict[str, Any]] = []

    def distance(self, step: int, name: str, found: np.ndarray) -> float:
        """How far a fetched value, or a parameter after a step, is from its value in float64."""
        while len(self._done) <= step:
            key = np.array([self._seed, len(self._done)], np.uint32)
            outputs, self._held = self._step(self._held, self._given, key)
            self._done.append({**self._held, **dict(zip(self._function.fetches, outputs, strict=True))})
        value = self._done[step][name]
        ragged = isinstance(value, LoDArray)
        rows = int(value.nrows) if ragged and value.nrows is not None else None
        exact = np.asarray(value.data[:rows] if ragged else value)
        return difference(found.astype(exact.dtype) if found.dtype.kind == "f" else found, exact)

    @cached_property
    def _step(self) -> Any:
        return in_double(self._function.step, self._held, self._given, np.zeros(2, np.uint32))


def _shaken(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter changed by about a millionth."""
    rng = np.random.default_rng(1)

    def shaken(leaf: Any) -> Any:
        array = np.asarray(leaf)
        if array.dtype.kind != "f":
            return leaf
        return (array * (1 + MILLIONTH * rng.standard_normal(array.shape))).astype(array.dtype)

    return jax.tree_util.tree_map(shaken, dict(parameters))
