"""A program as StableHLO (``jax.export``): exported, read back, run, and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from fluidjax.base.errors import explain
from fluidjax.export.function import ExportError, JaxFunction
from fluidjax.export.sizes import LENGTHS, Given, Shapes, told, with_sizes
from fluidjax.framework import Program
from lowering.values import LoDArray, fill_padding

# Of an input whose sizes are symbols: the number of sequences, and of rows of a ragged one.
_BATCH, _ROWS = 2, 64


def exported(
    program: Program, function: JaxFunction, parameters: Mapping[str, Any], given: Given, platforms: Sequence[str]
) -> tuple[bytes, str, dict[str, Any]]:
    """(the serialized program, its text, its signature), once it computes what the function does.

    Args:
        program: what the function was made of; it knows the shapes of inputs.
        given: sizes for what the program leaves open; symbols stand for the others.
        platforms: of cpu, cuda, tpu.

    Raises ExportError.
    """

    def written(shapes: Shapes, lengths: list[int]) -> tuple[bytes, Any, Shapes]:
        content = _serialized(function, parameters, shapes, platforms)
        read = export.deserialize(bytearray(content))
        _same_results(function, parameters, read, shapes, lengths[0])
        return content, read, shapes

    content, read, shapes = with_sizes(program, function.feeds, given, written)
    signature = {
        "inputs": {name: _described(shape) for name, shape in shapes.items()},
        "outputs": list(function.fetches),
        "key": function.random,
        "platforms": list(platforms),
        "jax": jax.__version__,
    }
    return content, read.mlir_module(), signature


def _described(shape: Any) -> Any:
    """[sizes, dtype]; for a ragged input {"data": those, "lod": those of each level}."""
    if isinstance(shape, dict):
        return {"data": _described(shape["data"]), "lod": [_described(level) for level in shape["lod"]]}
    return [told(shape), str(shape.dtype)]


def _serialized(function: JaxFunction, parameters: Any, shapes: Shapes, platforms: Sequence[str]) -> bytes:
    kinds = jax.tree_util.tree_map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), parameters)
    step = jax.jit(lambda weights, inputs, *key: _called(function, weights, inputs, *key))
    try:
        return bytes(export.export(step, platforms=list(platforms))(kinds, shapes, *_keys(function)).serialize())
    except NotImplementedError as error:
        what = "the program computes with what XLA does not have on every platform"
        said, wanted = str(error).strip().splitlines()[0], f"primitives of {', '.join(platforms)}"
        raise ExportError(explain(what, wanted, said, "name fewer --platforms")) from error


def _called(function: JaxFunction, weights: Any, inputs: Mapping[str, Any], *key: Any) -> list[Any]:
    values = {name: _sequences(**value) if isinstance(value, dict) else value for name, value in inputs.items()}
    return [_parts(value) for value in function(weights, values, *key)]


def _sequences(data: Any, lod: Sequence[Any]) -> LoDArray:
    """The rows of sequences, which end at the last offset; what ``data`` has after them is not read."""
    levels = [jnp.asarray(level, jnp.int32) for level in lod]
    rows = levels[-1][-1]
    longest = (*(level.shape[0] - 1 for level in levels[1:]), data.shape[0])
    return LoDArray(fill_padding(data, rows, backward=False), tuple(levels), rows, None, longest)


def _parts(value: Any) -> Any:
    """An output as the file has it: rows as {"data": ..., "lod": [...], "nrows": ...}."""
    if not isinstance(value, LoDArray):
        return value
    return {"data": value.data, "lod": list(value.lod), "nrows": jnp.asarray(value.rows())}


def _keys(function: JaxFunction) -> list[np.ndarray]:
    """The third argument where a program draws."""
    return [np.array([0, 1], np.uint32)] if function.random else []


def _same_results(function: JaxFunction, parameters: Any, read: Any, shapes: Shapes, length: int) -> None:
    inputs, keys = _drawn(shapes, length), _keys(function)
    expected = _called(function, parameters, inputs, *keys)
    here = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
    if here not in read.platforms:
        return
    for name, wanted, found in zip(function.fetches, expected, read.call(parameters, inputs, *keys), strict=True):
        for a, b in zip(*map(jax.tree_util.tree_leaves, (wanted, found)), strict=True):
            finite = np.abs(np.asarray(a, np.float64))
            scale = float(finite[np.isfinite(finite)].max(initial=1e-30))
            if not np.allclose(a, b, rtol=1e-5, atol=1e-6 * scale, equal_nan=True):
                what = f"output {name!r} came back changed"
                raise ExportError(explain(what, f"{a!r:.60}", f"{b!r:.60}", "report this"))


def _drawn(shapes: Shapes, length: int = LENGTHS[0]) -> dict[str, Any]:
    """Numbers of concrete shapes, for which symbols become small; integers are 0 or 1, as they often are ids."""
    rng = np.random.default_rng(0)
    return {
        name: _ragged(rng, shape, length) if isinstance(shape, dict) else _numbers(rng, shape, _BATCH, length)
        for name, shape in shapes.items()
    }


def _ragged(rng: np.random.Generator, shape: dict[str, Any], length: int) -> dict[str, Any]:
    """Sequences that leave some of the room for rows free, of the same lengths in all inputs."""
    data = _numbers(rng, shape["data"], _ROWS, length)
    counts = [_size(level, 0, _BATCH + 1, length) - 1 for level in shape["lod"]]
    number = counts[0]
    each = max(len(data) // max(number, 1) - 1, 1)
    ends = np.minimum(np.cumsum([0, *(max(each - i % 3, 1) for i in range(number))]), len(data))
    ones = [np.minimum(np.arange(count + 1), number) for count in counts[:-1]]
    last = np.concatenate([ends, np.full(counts[-1] - number, ends[-1])])
    return {"data": data, "lod": [level.astype(np.int32) for level in (*ones, last)]}


def _numbers(rng: np.random.Generator, shape: Any, first: int, length: int) -> np.ndarray:
    sizes = tuple(_size(shape, at, first, length) for at in range(len(shape.shape)))
    if np.issubdtype(shape.dtype, np.floating):
        return rng.standard_normal(sizes).astype(shape.dtype)
    return rng.integers(0, 2, sizes).astype(shape.dtype)


def _size(shape: Any, at: int, first: int, length: int) -> int:
    size = shape.shape[at]
    return size if isinstance(size, int) else length if at else first
