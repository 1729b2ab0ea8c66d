"""Reading the recording folders: operator cases (``ops/<type>.npz``)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.values import Rows, Table, Tensor, TensorList, Value

DATA = Path(__file__).parent / "data"


def folder() -> Path:
    """The recordings in use: the environment variable FLUIDJAX_GOLDEN, or the copy kept with the tests."""
    return Path(os.environ.get("FLUIDJAX_GOLDEN") or DATA)


def op_types() -> list[str]:
    """The operators that have recordings."""
    return sorted(p.stem for p in (folder() / "ops").glob("*.npz"))


@dataclass
class Variable:
    """One recorded variable of a case."""

    name: str
    slot: str | None
    value: Value | None  # None: the recording could not read it (step scopes)
    record: dict[str, Any]


@dataclass
class OpCase:
    """One run of one operator on concrete inputs."""

    record: dict[str, Any]
    arrays: Any  # the open npz

    @property
    def id(self) -> str:
        """The test the case comes from."""
        return self.record["id"]

    @property
    def op_type(self) -> str:
        """The operator."""
        return self.record["op_type"]

    @property
    def is_grad(self) -> bool:
        """Whether the case has gradients."""
        return self.record["kind"] == "grad"

    @property
    def program(self) -> bytes:
        """The serialized ProgramDesc to run: with the backward pass for a gradient case."""
        return self.arrays[self.record["grad_program" if self.is_grad else "program"]].tobytes()

    def variables(self, group: str) -> list[Variable]:
        """The variables of ``inputs``, ``outputs`` or ``grads``."""
        found = self.record.get(group, [])
        return [Variable(v["name"], v.get("slot"), value_of(v, self.arrays), v) for v in found]


def value_of(record: dict[str, Any], arrays: Any) -> Value | None:
    """A variable record as a value."""
    kind = record["kind"]
    if kind == "lod_tensor":
        key = record["array"]
        return Tensor(None if key is None else arrays[key], [list(x) for x in record["lod"]])
    if kind == "selected_rows":
        key = record["array"]
        return Rows(arrays[record["rows"]], record["height"], None if key is None else arrays[key])
    if kind == "lod_tensor_array":
        return TensorList([value_of(item, arrays) for item in record["items"]])  # type: ignore[misc]
    if kind == "lod_rank_table":
        return Table([list(p) for p in record["pairs"]])
    return None


def op_cases(op_type: str) -> Iterator[OpCase]:
    """The cases of one operator."""
    with np.load(folder() / "ops" / f"{op_type}.npz", allow_pickle=False) as z:
        arrays = {k: z[k] for k in z.files}
    for record in json.loads(arrays["cases"].tobytes().decode("utf-8"))["cases"]:
        yield OpCase(record, arrays)
