"""Locates and reads the files of a model or program given on the command line."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fluidjax.command.terms import BadUse
from fluidjax.files import inference
from fluidjax.framework import Program


@dataclass(frozen=True)
class ModelPath:
    """The location of a model: its directory, program file and parameter file (None: one file per parameter)."""

    folder: str
    program: str
    parameters: str | None

    @property
    def program_path(self) -> str:
        """The program's file."""
        return os.path.join(self.folder, self.program)


def find(path: str, params: str | None = None) -> ModelPath:
    """The model at ``path``: a directory with a program, a program's file, or the prefix of Paddle 2's two files.

    Raises BadUse if there is none.
    """
    if os.path.isfile(path):
        return ModelPath(os.path.dirname(path) or ".", os.path.basename(path), params or _beside(path))
    if os.path.isfile(f"{path}.pdmodel"):  # Paddle 2 names a model by the beginning of its files
        return find(f"{path}.pdmodel", params)
    usual = [name for name in (inference.MODEL, "model", "inference.pdmodel") if _is_file(path, name)]
    candidates = usual or _only(path)
    if not os.path.isdir(path) or not candidates:
        raise BadUse(
            f"no model at {path!r}",
            f"a folder with {inference.MODEL!r} in it, or the file of a program",
            "a folder without one" if os.path.isdir(path) else "no such file or folder",
            "give the folder that save_inference_model wrote, or the program's file itself",
        )
    return ModelPath(path, candidates[0], params or _beside(os.path.join(path, candidates[0])))


def read_program(path: ModelPath) -> Program:
    """The program without its parameters."""
    with open(path.program_path, "rb") as file:
        return inference.parse(file.read(), path.program_path)


def _is_file(folder: str, name: str) -> bool:
    return os.path.isfile(os.path.join(folder, name))


def _only(path: str) -> list[str]:
    """The only Paddle 2 program in a directory, whatever its name."""
    found = [n for n in os.listdir(path) if n.endswith(".pdmodel")] if os.path.isdir(path) else []
    return found if len(found) == 1 else []


def _beside(path: str) -> str | None:
    """The parameter file that belongs to a program file, if it has a usual name."""
    folder, name = os.path.split(path)
    stem = name.rpartition(".")[0]
    usual = (*((f"{stem}.pdiparams",) if stem else ()), "__params__", "params")
    return next((other for other in usual if _is_file(folder or ".", other)), None)
