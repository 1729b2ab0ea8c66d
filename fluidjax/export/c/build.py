"""Compile a C file, run the executable, and compare its results with the Executor's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.export.c.ports import Port
from fluidjax.export.function import ExportError

Fetched = tuple[np.ndarray, list[list[int]]]  # a fetched array, and its sequence lengths by level

# errno and floating-point flags are never read; ignoring them lets compilers vectorise square roots and selections.
FLAGS = ("-O3", "-std=c99", "-Wall", "-Werror", "-fno-math-errno", "-fno-trapping-math")


def compiler() -> str | None:
    """The C compiler: ``$CC``, cc, gcc or clang; None if there is none."""
    names = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    return next((found for name in names if name and (found := shutil.which(name))), None)


def compile_c(source: Path, executable: Path, flags: Sequence[str] = ()) -> None:
    """Compile a file; raise ExportError on errors and warnings alike."""
    cc = compiler()
    if cc is None:
        raise ExportError(
            explain(
                "no C compiler to check the C file with",
                "cc, gcc, clang, or what $CC names",
                "none in $PATH",
                "install one, or write the file unchecked with --no-check",
            )
        )
    done = subprocess.run(
        [cc, *FLAGS, *flags, "-o", str(executable), str(source), "-lm"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ExportError(explain("the C file does not compile", "no word", done.stderr[:2000], "report this"))


def save_inputs(
    folder: Path, ports: Sequence[Port], values: Mapping[str, tuple[np.ndarray, list]], step: str = ""
) -> None:
    """Write a feed, name -> (array, lengths by level), in the form the executable reads."""
    for port in ports:
        array, lengths = values[port.name]
        np.save(folder / f"{port.file}{step}.npy", np.ascontiguousarray(array).astype(port.data.dtype, copy=False))
        for level, numbers in enumerate(lengths):
            suffix = f".lengths{level}" if level else ".lengths"
            np.save(folder / f"{port.file}{suffix}{step}.npy", np.asarray(numbers, np.int64))


def load_outputs(folder: Path, ports: Sequence[Port], step: str = "") -> dict[str, Fetched]:
    """Read what the executable wrote: name -> (array, lengths by level)."""
    found = {}
    for port in ports:
        names = [f"{port.file}.lengths{level or ''}{step}.npy" for level in range(len(port.levels))]
        lengths = [np.load(folder / name).tolist() for name in names]
        found[port.name] = np.load(folder / f"{port.file}{step}.npy"), lengths
    return found


def run_c(executable: Path, inputs: Path, outputs: Path, *options: str) -> str:
    """Run the executable and return its output; raise ExportError if it fails."""
    words = [str(executable.resolve()), str(inputs), str(outputs), *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExportError(
            explain("the C program failed", "exit status 0", f"{done.returncode}: {done.stderr[:2000]}", "report this")
        )
    return done.stdout


def as_executed(found: Fetched, wanted: Fetched) -> Fetched:
    """What an exported function gives in the form of the Executor: without the room for what values might have said.

    Past the end of sequences are zeros (the path of ``viterbi_decode``); where nothing is detected there are no rows,
    and in Fluid one of [[-1]].
    """
    array, want = found[0], wanted[0]
    if array.shape[:1] == (0,) and want.shape == (1, 1) and want[0, 0] == -1 and not any(map(sum, found[1])):
        return wanted
    if array.ndim != want.ndim or array.shape[:1] != want.shape[:1]:
        return found
    inside = tuple(map(slice, want.shape))
    beyond = array.copy()
    beyond[inside] = 0
    return found if beyond.any() else (array[inside], found[1])


def difference(found: Any, expected: Any) -> float:
    """Largest difference between two arrays relative to the largest element; inf if shapes or integers differ."""
    a, b = np.asarray(found), np.asarray(expected)
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.inf
    if b.dtype.kind != "f":
        return 0.0 if np.array_equal(a, b) else np.inf
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    if not finite.any():
        return 0.0
    scale = max(float(np.abs(b[finite]).max()), 1e-3)
    return float(np.abs(a[finite].astype(np.float64) - b[finite]).max()) / scale
