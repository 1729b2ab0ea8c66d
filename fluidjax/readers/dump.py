"""Dumping values of variables to files, example by example, while a program trains on a dataset."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

Texts = Sequence[Mapping[str, str]]  # of each example: its "id" and "content", where it has them

_FILES = 16  # as in Fluid, where the options do not say


class Dump:
    """Appends to files, batch after batch, what a program's options ask for.

    Each batch writes one line per example: its id and content, each empty where its data set reads none, and
    NAME:COLUMNS:VALUE:VALUE... for each of ``dump_fields`` with one row per example, tab-separated; then a line
    (BATCH,NAME):VALUE:VALUE... for each of ``dump_param``. As in Fluid, names not in the program are skipped. Lines are
    dealt to this process's files in turn (in Fluid, to whichever of as many threads takes them first).

    Args:
        block: the program's global block.
        options: with dump_fields, dump_param, dump_fields_path (the folder), mpi_rank (of the files' names), mpi_size,
            and dump_file_num: how many files all processes write together.

    Attributes:
        names: what has to be fetched; none where the options ask for nothing.
    """

    def __init__(self, block: Any, options: Mapping[str, Any] | None):
        asked = options if options and options.get("dump_fields") else {}
        self._fields, self._params = (
            [n for n in asked.get(of) or () if block.has_var(n)] for of in ("dump_fields", "dump_param")
        )
        self.names = [*self._fields, *self._params]
        self._batch = self._lines = 0
        if asked:
            os.makedirs(asked["dump_fields_path"], exist_ok=True)
            name = os.path.join(asked["dump_fields_path"], f"part-{asked.get('mpi_rank', 0):03d}-")
            self._files = [f"{name}{number:05d}" for number in range(_own_files(asked))]
            for path in self._files:
                open(path, "w").close()

    def write(self, tensors: Sequence[Any], texts: Texts) -> None:
        """Write what a batch has fetched of ``names``; ``texts`` are those of its examples."""
        if not self.names:
            return
        asked = dict(zip(self.names, tensors, strict=True))
        params = (f"({self._batch},{name}):{_joined(np.asarray(asked[name]))}\n" for name in self._params)
        lines = list(chain(_examples({name: asked[name] for name in self._fields}, texts), params))
        for number, path in enumerate(self._files):
            with open(path, "a") as file:
                file.writelines(lines[(number - self._lines) % len(self._files) :: len(self._files)])
        self._batch, self._lines = self._batch + 1, self._lines + len(lines)


def _own_files(asked: Mapping[str, Any]) -> int:
    """How many of ``dump_file_num`` files are this process's; at least one."""
    processes, files = asked.get("mpi_size", 0), asked.get("dump_file_num", _FILES)
    if not 0 < processes < files:
        return 1
    return files // processes + (files % processes > asked.get("mpi_rank", 0))


def _examples(tensors: Mapping[str, Any], texts: Texts) -> Iterable[str]:
    """One line per example, from the tensors that have as many rows or sequences as any."""
    parts = {name: _parts(tensor) for name, tensor in tensors.items() if len(tensor.shape()) == 2}
    count = max(map(len, parts.values()), default=0)
    for i in range(count):
        shown = [f"{name}:{rows[i].shape[1]}:{_joined(rows[i])}" for name, rows in parts.items() if len(rows) == count]
        known = texts[i] if i < len(texts) else {}
        yield "\t".join([known.get("id", ""), known.get("content", ""), *shown]) + "\n"


def _parts(tensor: Any) -> list[np.ndarray]:
    value, lod = np.asarray(tensor), tensor.lod()
    return np.split(value, lod[0][1:-1] if lod else range(1, len(value)))


def _joined(values: np.ndarray) -> str:
    return ":".join(f"{value:g}" if values.dtype.kind == "f" else str(value) for value in values.ravel())
