"""Requests and answers as JSON.

A request is ``{"inputs": {"x": [[1, 2]], "words": [[3, 4, 5], [6]], "other": {"data": [[7], [8]], "lod": [[0, 2]]}}}``:
an input is a nested list; a ragged one a list of sequences, or its rows with offsets. An answer is
``{"outputs": {"y": {"data": [[0.5]], "dtype": "float32", "shape": [1, 1], "lod": []}}}``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from fluidjax.base.lod import Lod, lengths_to_offsets
from fluidjax.serving.errors import bad_input
from fluidjax.serving.tensors import Tensor, Variable

MEDIA = "application/json"


def read(body: bytes, inputs: Mapping[str, Variable], limit: int) -> dict[str, Tensor]:
    """The inputs in a request. Raises Refused for an invalid request; ``limit`` applies to formats that unpack."""
    try:
        request = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        received = "lists in lists in lists ..." if isinstance(error, RecursionError) else str(error)
        raise bad_input("the body is not JSON that can be read", "a JSON object", received, "see GET /model") from None
    given = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(given, dict) or set(request) != {"inputs"}:
        received = f"an object with {sorted(request)}"[:200] if isinstance(request, dict) else _kind(request)
        raise bad_input(
            "the body is no request", '{"inputs": {name: value}}', received, "name the inputs under 'inputs'"
        )
    check_names(given, inputs)
    return {name: _tensor(var, given[name]) for name, var in inputs.items()}


def check_names(given: Mapping[str, Any], inputs: Mapping[str, Variable]) -> None:
    """Reject unknown and missing names."""
    if set(given) != set(inputs):
        raise bad_input(
            "the inputs are not those of the model",
            f"{list(inputs)}",
            f"{sorted(given)}"[:500],
            "send each of them, once",
        )


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word}, which JSON does not have")


def _kind(value: Any) -> str:
    words = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return words.get(type(value), "a number")


def _tensor(var: Variable, value: Any) -> Tensor:
    if isinstance(value, dict):
        if not set(value) <= {"data", "lod"} or "data" not in value:
            raise bad_input(
                f"input {var.name!r}: the object is no tensor",
                '{"data": rows, "lod": offsets}',
                f"an object with {sorted(value)}"[:200],
                "send data, and lod where the input is ragged",
            )
        return var.accept(_array(var, value["data"]), _offsets(var, value.get("lod", [])))
    if not var.lod_level:
        return var.accept(_array(var, value), [])
    lengths: list[list[int]] = []
    for _ in range(var.lod_level):
        if not isinstance(value, list) or not all(isinstance(part, list) for part in value):
            raise bad_input(
                f"input {var.name!r}: sequences are lists",
                f"a list of lists, {var.lod_level + 1} deep or deeper",
                _kind(value) if not isinstance(value, list) else "a list with something else in it",
                "send [[1, 2], [3]] for two sequences of 2 and 1 rows",
            )
        lengths.append([len(part) for part in value])
        value = [row for part in value for row in part]
    # No rows have no shape: it is the declared one.
    rows = _array(var, value) if value else np.zeros((0, *(max(n, 1) for n in var.shape[1:])))
    return var.accept(rows, lengths_to_offsets(lengths))


def _array(var: Variable, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError, RecursionError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise bad_input(
            f"input {var.name!r}: the value is no array of numbers",
            f"nested lists of equal lengths of {var.in_words()}",
            "text" if array.dtype.kind == "U" else "lists of different lengths, or what is no number",
            "send the numbers as nested lists; sequences of different lengths only where the input has LoD",
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise bad_input(
            f"input {var.name!r}: a number is too large", "finite numbers", "more than 1e308", "send others"
        )
    return array


def _offsets(var: Variable, value: Any) -> Lod:
    """Levels of integers; whether they match the rows is checked by the variable."""
    if isinstance(value, list) and all(map(_is_level, value)):
        return value
    raise bad_input(
        f"input {var.name!r}: 'lod' is no list of levels",
        "lists of whole numbers: [[0, 2, 5]]",
        _kind(value),
        "send offsets",
    )


def _is_level(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and abs(n) < 1 << 62 for n in value)


def write(outputs: Mapping[str, Tensor]) -> bytes:
    """Encode an answer. Infinities and NaN, which JSON lacks, become the strings "Infinity", "-Infinity" and "NaN"."""
    shown = {
        name: {"data": _list(t.rows), "dtype": str(t.rows.dtype), "shape": list(t.rows.shape), "lod": t.lod}
        for name, t in outputs.items()
    }
    return json.dumps({"outputs": shown}, allow_nan=False, separators=(",", ":")).encode()


def _list(rows: np.ndarray) -> Any:
    values = rows.tolist()
    return _named(values) if rows.dtype.kind == "f" and not np.isfinite(rows).all() else values


def _named(value: Any) -> Any:
    if isinstance(value, list):
        return [_named(part) for part in value]
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
