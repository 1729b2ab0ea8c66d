"""From a program to a Python module: trace, write, run where fluidjax is absent, and compare with the Executor."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax.tree_util import tree_leaves

from fluidjax.base.errors import explain
from fluidjax.base.scope import Scope
from fluidjax.export.c.build import Fetched, as_executed, difference
from fluidjax.export.c.convert import SEED, Exact, Feed, executed
from fluidjax.export.function import ExportError, JaxFunction, to_jax
from fluidjax.export.python.page import Written, write
from fluidjax.framework import Program
from lowering.errors import LoweringError

# How far a module may differ from the Executor, or else from float64, relative to the largest element.
TOLERANCE, FROM_EXACT = 1e-6, 1e-5
SECONDS = 600


def files_of(
    program: Program,
    feeds: Sequence[str],
    fetches: Sequence[str],
    scope: Scope,
    *,
    draws: Sequence[Mapping[str, Feed]],
    shapes: Mapping[str, Any] | None = None,
    room: int = 0,
    name: str = "model",
) -> dict[str, bytes]:
    """File name -> content: ``model.py`` and ``weights.npz``.

    Args:
        program, feeds, fetches, scope: as for ``to_jax``.
        draws: the inputs used for the comparison.
        shapes: input -> jax.ShapeDtypeStruct, with symbols for open sizes; None takes the shapes of the first draw.
        room: the maximum number of rows of a ragged input.
        name: the model's name in the module's docstring.

    Raises ExportError, before anything is run, for a program with primitives that have no rule, and for a result that
    differs from the Executor's.
    """
    function, parameters = to_jax(program, feeds, fetches, scope=scope, platform="gpu")
    given = shapes or {n: feed.value(room) for n, feed in draws[0].items()}
    written = write(function, parameters, given, name)
    buffer = io.BytesIO()
    np.savez(buffer, **written.weights)  # type: ignore[arg-type]
    files = {"model.py": written.text.encode(), "weights.npz": buffer.getvalue()}
    expected = [_expected(program, function, parameters, drawn, open_sizes=shapes is not None) for drawn in draws]
    with tempfile.TemporaryDirectory() as folder:
        for file, content in files.items():
            (Path(folder) / file).write_bytes(content)
        found = run_alone(Path(folder), [_leaves(function, drawn, room) for drawn in draws], written)
    for drawn, got, wanted in zip(draws, found, expected, strict=True):
        fetched = [_fetched(paths, leaves) for paths, leaves in zip(written.outputs, got, strict=True)]
        judge = Exact(function, parameters, {n: feed.value(room) for n, feed in drawn.items()}, SEED)
        _compare(function, judge, fetched, wanted)
    return files


_ALONE = """
import sys, importlib.abc
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("fluidjax", "lowering"):
            raise ImportError("the module has to do without " + name)
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
import numpy as np, jax, model
forms = eval(sys.argv[2])
predict = jax.jit(model.predict)
for at, form in enumerate(forms):
    with np.load(f"{sys.argv[1]}/inputs{at}.npz") as given:
        feeds = [tuple(given[f"{i}_{j}"] for j in range(n)) if n > 1 else given[f"{i}_0"] for i, n in enumerate(form)]
        arguments = model.predict.__code__.co_varnames[: model.predict.__code__.co_argcount]
        key = [jax.random.wrap_key_data(given["key"])] if arguments[-1] == "key" else []
    found = jax.tree_util.tree_leaves(predict(model.load(), *feeds, *key))
    np.savez(f"{sys.argv[1]}/outputs{at}.npz", **{str(i): np.asarray(x) for i, x in enumerate(found)})
"""


def run_alone(folder: Path, inputs: Sequence[list[list[np.ndarray]]], written: Written) -> list[list[list[np.ndarray]]]:
    """Run the module in a process that cannot import fluidjax: for each input, the outputs' arrays."""
    for at, leaves in enumerate(inputs):
        arrays = {f"{i}_{j}": array for i, feed in enumerate(leaves) for j, array in enumerate(feed)}
        np.savez(folder / f"inputs{at}.npz", key=np.array([SEED, 0], np.uint32), **arrays)  # type: ignore[arg-type]
    forms = repr([[len(feed) for feed in leaves] for leaves in inputs])
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    words = [sys.executable, "-I", "-c", _ALONE, str(folder), forms]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=SECONDS)
    if done.returncode:
        raise ExportError(explain("the module does not run", "exit status 0", done.stderr[-2000:], "report this"))
    found = []
    for at in range(len(inputs)):
        with np.load(folder / f"outputs{at}.npz") as outputs:
            arrays_ = iter([outputs[str(i)] for i in range(len(outputs.files))])
            found.append([[next(arrays_) for _ in leaves] for leaves in written.outputs])
    return found


def _leaves(function: JaxFunction, drawn: Mapping[str, Feed], room: int) -> list[list[np.ndarray]]:
    return [[np.asarray(leaf) for leaf in tree_leaves(drawn[n].value(room))] for n in function.feeds]


def _fetched(paths: list[str], leaves: list[np.ndarray]) -> Fetched:
    """An output's valid rows, and its sequence lengths."""
    named = dict(zip(paths, leaves, strict=True))
    if ".data" not in named:
        return leaves[0], []
    rows = named[".data"][: int(named.get(".nrows", len(named[".data"])))]
    return rows, [np.diff(level).tolist() for path, level in named.items() if path.startswith(".lod")]


def _expected(
    program: Program, function: JaxFunction, parameters: Mapping[str, Any], drawn: Mapping[str, Feed], open_sizes: bool
) -> dict[str, Fetched]:
    """What the Executor fetches; ExportError where it does not take sizes that the program leaves open."""
    try:
        return executed(program, function, parameters, drawn, 1)[0]
    except LoweringError as error:
        if not open_sizes:
            raise
        raise ExportError(
            explain(
                f"the model takes only some of the sizes that it leaves open: {str(error).strip().splitlines()[0]}",
                "results for " + ", ".join(f"{name} {list(feed.rows.shape)}" for name, feed in drawn.items()),
                "none",
                "fix the batch: --batch N",
            )
        ) from error


def _compare(function: JaxFunction, judge: Exact, got: Sequence[Fetched], expected: Mapping[str, Fetched]) -> None:
    """Compare; where float32 rounds differently, the same function in float64 decides."""
    for name, fetched in zip(function.fetches, got, strict=True):
        want = expected[name][0]
        found, _ = as_executed(fetched, expected[name])
        apart = difference(found, want)
        if not apart <= TOLERANCE and not judge.distance(0, name, fetched[0]) <= FROM_EXACT:
            raise ExportError(
                explain(
                    f"the module computes another {name!r} than the Executor",
                    f"a relative difference of at most {TOLERANCE:.0e}, {str(want.ravel()[:4])}",
                    f"{apart:.1e}, {str(found.ravel()[:4])}",
                    "report this",
                )
            )
