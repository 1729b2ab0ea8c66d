"""Dumping values of variables to files, example by example, while a program trains on a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Run = Callable[[Mapping[str, Any], Sequence[Any]], list[Any]]


def dumping(run: Run, block: Any, options: Mapping[str, Any] | None) -> Run:
    """Wrap ``run`` to append the values requested by a program's options to a file; ``run`` itself if there are none.

    Each batch writes one line per example: its id and content, both empty here, and NAME:COLUMNS:VALUE:VALUE... for
    each of ``dump_fields`` with one row per example, tab-separated; then a line (BATCH,NAME):VALUE:VALUE... for each of
    ``dump_param``. As in Fluid, names not in the program are skipped.

    Args:
        run: (feed, fetch list) -> fetched tensors.
        block: the program's global block.
        options: with dump_fields, dump_param, dump_fields_path (the directory) and mpi_rank (used in the file name).
    """
    if not options or not options.get("dump_fields"):
        return run
    fields, params = ([n for n in options.get(of) or () if block.has_var(n)] for of in ("dump_fields", "dump_param"))
    os.makedirs(options["dump_fields_path"], exist_ok=True)
    path = os.path.join(options["dump_fields_path"], f"part-{options.get('mpi_rank', 0):03d}-00000")
    open(path, "w").close()
    batch = 0

    def run_and_dump(feed: Mapping[str, Any], fetches: Sequence[Any]) -> list[Any]:
        nonlocal batch
        values = run(feed, [*fetches, *fields, *params])
        own, asked = values[: len(fetches)], dict(zip([*fields, *params], values[len(fetches) :], strict=True))
        with open(path, "a") as file:
            file.writelines(_examples({name: asked[name] for name in fields}))
            file.writelines(f"({batch},{name}):{_joined(np.asarray(asked[name]))}\n" for name in params)
        batch += 1
        return own

    return run_and_dump


def _examples(tensors: Mapping[str, Any]) -> Iterable[str]:
    """One line per example, from the tensors that have the most common number of rows or sequences."""
    parts = {name: _parts(tensor) for name, tensor in tensors.items() if len(tensor.shape()) == 2}
    count = max(map(len, parts.values()), default=0)
    for i in range(count):
        shown = [f"{name}:{rows[i].shape[1]}:{_joined(rows[i])}" for name, rows in parts.items() if len(rows) == count]
        yield "\t".join(["", "", *shown]) + "\n"


def _parts(tensor: Any) -> list[np.ndarray]:
    value, lod = np.asarray(tensor), tensor.lod()
    return np.split(value, lod[0][1:-1] if lod else range(1, len(value)))


def _joined(values: np.ndarray) -> str:
    return ":".join(f"{value:g}" if values.dtype.kind == "f" else str(value) for value in values.ravel())
