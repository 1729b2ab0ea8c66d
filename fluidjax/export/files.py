"""Exporting a saved model to other formats: weights as .npz or .safetensors, the whole as StableHLO or C.

Each file is read back and compared before export succeeds.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import export

from fluidjax.base.errors import explain
from fluidjax.base.scope import Scope
from fluidjax.export.c.convert import draw_feeds, files_of
from fluidjax.export.function import ExportError, JaxFunction, data_needed, to_jax
from fluidjax.export.python import convert as python
from fluidjax.files import atomic, inference
from fluidjax.framework import Program
from lowering.dtypes import to_numpy
from lowering.engine.x64 import in_x64
from lowering.values import LoDArray

_EXECUTABLE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"MZ")
PLATFORMS = ("cpu", "cuda", "tpu")
_LENGTHS = [32, 16]  # of open dims after the first in a comparison: room enough for the windows of an image network


class _Form(NamedTuple):
    """How open sizes after the first are written: whether inputs share symbols, how small they may be, what divides."""

    shared: bool = False
    least: int = 0
    times: int = 1

    @property
    def lengths(self) -> list[int]:
        """Sizes for comparisons."""
        return _LENGTHS if self.times == 1 else [self.times, 2 * self.times]


_FORMS = (_Form(), _Form(shared=True), _Form(shared=True, least=16), _Form(shared=True, times=32))

Shapes = dict[str, jax.ShapeDtypeStruct]


def _needed(module: str) -> Any:
    """A module of the extra `export`. ExportError says how to install it."""
    try:
        return __import__(module, fromlist=["_"])
    except ImportError as error:
        raise ExportError(
            explain(
                f"writing this format needs the package {module.partition('.')[0]}",
                "it installed",
                "it is not",
                "pip install 'fluidjax[export]'",
            )
        ) from error


class Model:
    """A saved model, loaded once, to be written in other formats.

    Args:
        folder: a directory written by ``save_inference_model``.
        model_filename, params_filename: as for ``load_inference_model``.
    """

    def __init__(self, folder: str | os.PathLike[str], model_filename: str | None, params_filename: str | None):
        scope = Scope()
        loaded = inference.load(os.fspath(folder), model_filename, params_filename, scope)
        self.program: Program = loaded[0]
        self.feeds: list[str] = loaded[1]
        self.fetches = [var.name for var in loaded[2]]
        self.scope = scope
        self.name = os.path.basename(os.path.abspath(os.fspath(folder)))

    def function(self, platform: str | None = None) -> tuple[JaxFunction, dict[str, Any]]:
        """The model as a function; see ``to_jax``."""
        return to_jax(self.program, self.feeds, self.fetches, scope=self.scope, platform=platform)

    def weights(self) -> dict[str, np.ndarray]:
        """All parameters, by name."""
        return {name: np.asarray(value) for name, value in self.function()[1].items()}

    def write(self, name: str, to: str, **options: Any) -> list[str]:
        """Write the model; ``to`` is one of ``FORMATS``. Returns the paths of the files.

        Raises ExportError if the model cannot be represented in the format, or is changed by it.
        """
        folder, files = FORMATS[to](self, **options)
        path = Path(name)
        target = path if folder else path.parent
        named = files if folder else dict(zip([path.name], files.values(), strict=True))
        atomic.write_files(str(target), {file: [content] for file, content in named.items()})
        for file, content in named.items():
            if content.startswith(_EXECUTABLE):
                os.chmod(target / file, 0o755)
        return [str(target / file) for file in named]


def _npz(model: Model) -> tuple[bool, dict[str, bytes]]:
    buffer = io.BytesIO()
    weights = model.weights()
    np.savez(buffer, **weights)  # type: ignore[arg-type]
    content = buffer.getvalue()
    with np.load(io.BytesIO(content), allow_pickle=False) as read:
        _same_weights(weights, {name: read[name] for name in read.files})
    return False, {"weights": content}


def _safetensors(model: Model) -> tuple[bool, dict[str, bytes]]:
    library = _needed("safetensors.numpy")
    weights = {name: np.ascontiguousarray(value) for name, value in model.weights().items()}
    content = library.save(weights, metadata={"format": "np"})
    _same_weights(weights, library.load(content))
    return False, {"weights": content}


def _same_weights(written: Mapping[str, np.ndarray], read: Mapping[str, np.ndarray]) -> None:
    for name, array in written.items():
        if name not in read or read[name].dtype != array.dtype or read[name].tobytes() != array.tobytes():
            raise ExportError(
                explain(f"the file does not hold parameter {name!r} as it was", "equal bytes", "others", "report this")
            )


@in_x64
def _stablehlo(
    model: Model, *, platforms: Sequence[str] = PLATFORMS, batch: int | None = None
) -> tuple[bool, dict[str, bytes]]:
    """``model.jax_export`` (``jax.export.deserialize``), ``model.mlir`` (text), ``weights.npz``, ``signature.json``.

    An output whose rows values decide is a dict: ``data``, with room for all that there can be, ``lod``, ``nrows``.
    Called with the weights and the inputs by name, and with a key's data (uint32 [2]) if the model draws.

    Args:
        platforms: of cpu, cuda, tpu.
        batch: replaces sizes that the model leaves open; None: a symbol each, with one shared by the first dims.
    """
    _needed("flatbuffers")
    function, parameters = model.function("cpu" if tuple(platforms) == ("cpu",) else "gpu")

    def written(shapes: Shapes, _: list[int]) -> tuple[bytes, Any, Shapes]:
        content = _exported(function, parameters, shapes, platforms)
        exported = export.deserialize(bytearray(content))
        _same_results(function, parameters, exported, shapes)
        return content, exported, shapes

    content, exported, shapes = _with_sizes(model, batch, written)
    signature = {
        "inputs": {name: [[str(n) for n in shape.shape], str(shape.dtype)] for name, shape in shapes.items()},
        "outputs": list(function.fetches),
        "key": function.random,
        "platforms": list(platforms),
        "jax": jax.__version__,
    }
    return True, {
        "model.jax_export": content,
        "model.mlir": exported.mlir_module().encode(),
        "weights.npz": _npz(model)[1]["weights"],
        "signature.json": json.dumps(signature, indent=1).encode(),
    }


def _with_sizes(model: Model, batch: int | None, write: Callable[[Shapes, list[int]], Any]) -> Any:
    """What ``write`` makes of the inputs' shapes, with a symbol for each open size; of the first form that it can take.

    ``write`` is also told sizes to compare at. Whether two inputs have to be equally long (the ids and the segments of
    a text), to have room for a window, or to be halved and doubled back (the images of a detector), is known to the
    program alone: tried are a symbol for each size, one for each axis, one of at least 16, and one times 32.
    """
    forms = {(str(shapes := _shapes(model, batch, form)), form.least): (shapes, form.lengths) for form in _FORMS}
    refused: list[ExportError] = []
    for shapes, lengths in forms.values():
        try:
            with _symbols_refused(shapes):
                return write(shapes, lengths)
        except ExportError as error:
            refused.append(error)
    raise refused[-1]


def _shapes(model: Model, batch: int | None, form: _Form) -> Shapes:
    variables = model.program.global_block().vars
    ragged = [name for name in model.feeds if variables[name].lod_level]
    if ragged:
        raise ExportError(
            explain(
                f"inputs of ragged sequences have no shape: {ragged}",
                "dense inputs",
                f"LoD in {len(ragged)} of {len(model.feeds)}",
                "give the model away with fluidjax.to_jax, whose functions take ragged values",
            )
        )
    sizes = [(name, variables[name].shape) for name in model.feeds]
    after = {_symbol(name, at, n, form) for name, dims in sizes for at, n in enumerate(dims) if at and n < 0}
    scope = export.SymbolicScope([f"{word} >= {form.least}" for word in sorted(after)] if form.least else ())
    found = {}
    for name in model.feeds:
        var = variables[name]
        if batch is None:
            words = [_symbol(name, at, size, form) for at, size in enumerate(var.shape)]
            shape = export.symbolic_shape(", ".join(words), scope=scope) if words else ()
        else:
            shape = tuple(batch if size < 0 else size for size in var.shape)
        found[name] = jax.ShapeDtypeStruct(shape, to_numpy(int(var.dtype)))
    return found


def _symbol(name: str, at: int, size: int, form: _Form) -> str:
    if size >= 0:
        return str(size)
    if at == 0:
        return "batch"
    word = "size" if form.shared else "".join(c if c.isalnum() else "_" for c in name)
    return f"{word}_{at}" if form.times == 1 else f"{form.times}*{word}_{at}"


def _exported(function: JaxFunction, parameters: Any, shapes: Any, platforms: Sequence[str]) -> bytes:
    kinds = jax.tree_util.tree_map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), parameters)
    step = jax.jit(lambda weights, inputs, *key: [_parts(value) for value in function(weights, inputs, *key)])
    try:
        return bytes(export.export(step, platforms=list(platforms))(kinds, shapes, *_keys(function)).serialize())
    except NotImplementedError as error:
        what = "the program computes with what XLA does not have on every platform"
        told, wanted = str(error).strip().splitlines()[0], f"primitives of {', '.join(platforms)}"
        raise ExportError(explain(what, wanted, told, "name fewer --platforms")) from error


def _keys(function: JaxFunction) -> list[np.ndarray]:
    """The third argument where a program draws."""
    return [np.array([0, 1], np.uint32)] if function.random else []


@contextlib.contextmanager
def _symbols_refused(shapes: Any) -> Iterator[None]:
    """What fails where sizes are symbols is said to be their fault; the model itself runs with sizes of any number."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ExportError) or all(isinstance(n, int) for shape in shapes.values() for n in shape.shape):
            raise
        raise ExportError(
            explain(
                f"the program does not allow a symbolic batch: {str(error).strip().splitlines()[0]}",
                "ops whose shapes are sums and products of the batch's size",
                ", ".join(f"{name} {list(map(str, shape.shape))}" for name, shape in shapes.items()),
                "fix the batch: --batch N",
            )
        ) from error


def _same_results(function: JaxFunction, parameters: Any, exported: Any, shapes: Any) -> None:
    rng = np.random.default_rng(0)
    given = ({name: _drawn(rng, shape) for name, shape in shapes.items()}, *_keys(function))
    expected = [_parts(value) for value in function(parameters, *given)]
    here = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
    if here not in exported.platforms:
        return
    for name, wanted, found in zip(function.fetches, expected, exported.call(parameters, *given), strict=True):
        for a, b in zip(*map(jax.tree_util.tree_leaves, (wanted, found)), strict=True):
            finite = np.abs(np.asarray(a, np.float64))
            scale = float(finite[np.isfinite(finite)].max(initial=1e-30))
            if not np.allclose(a, b, rtol=1e-5, atol=1e-6 * scale, equal_nan=True):
                told = f"output {name!r} came back changed"
                raise ExportError(explain(told, f"{a!r:.60}", f"{b!r:.60}", "report this"))


def _parts(value: Any) -> Any:
    """An output as the file has it: rows as {"data": ..., "lod": [...], "nrows": ...}."""
    if not isinstance(value, LoDArray):
        return value
    return {"data": value.data, "lod": list(value.lod), "nrows": jax.numpy.asarray(value.rows())}


def _drawn(rng: np.random.Generator, shape: jax.ShapeDtypeStruct) -> np.ndarray:
    """Numbers of a concrete shape; integers are small, as they often are ids."""
    sizes = tuple(n if isinstance(n, int) else _LENGTHS[0] if at else 2 for at, n in enumerate(shape.shape))
    if np.issubdtype(shape.dtype, np.floating):
        return rng.standard_normal(sizes).astype(shape.dtype)
    return rng.integers(0, 2, sizes).astype(shape.dtype)


def _c(
    model: Model,
    *,
    batch: int | None = None,
    rows: int | None = None,
    train: bool = False,
    fetch: Sequence[str] = (),
    inside: bool | None = None,
    check: bool = True,
) -> tuple[bool, dict[str, bytes]]:
    """``model.c``, ``model.safetensors`` where the weights are not inside, and the executable ``model``.

    See ``fluidjax.export.c.convert``. Args: fetch: other outputs than the model's own.
    """
    fetches = [*fetch] or model.fetches
    feeds = model.feeds if model.feeds and not fetch else data_needed(model.program, fetches)
    return True, files_of(
        model.program,
        feeds,
        fetches,
        model.scope,
        batch=1 if batch is None else batch,
        rows=rows,
        train=train,
        inside=inside,
        check=check,
    )


def _jax(model: Model, *, batch: int | None = None, rows: int | None = None) -> tuple[bool, dict[str, bytes]]:
    """``model.py``, a module of plain JAX, and ``weights.npz``. See ``fluidjax.export.python``.

    Args:
        batch: replaces sizes that the model leaves open; None: they stay open, if no input is ragged.
        rows: the most rows of a ragged input.
    """
    variables = model.program.global_block().vars
    ragged = any(variables[name].lod_level for name in model.feeds)
    fixed = ragged or batch is not None
    sizes = [batch or 2] if fixed else [2, 3]

    def written(shapes: Shapes | None, lengths: Sequence[int | None]) -> dict[str, bytes]:
        drawn = [
            draw_feeds(model.program, model.feeds, *size) for size in zip(sizes, [rows] * 2, lengths, strict=False)
        ]
        given: dict[str, Any] = {"draws": drawn, "room": rows or 16 * sizes[0], "name": model.name}
        return python.files_of(model.program, model.feeds, model.fetches, model.scope, shapes=shapes, **given)

    return True, written(None, [None]) if fixed else _with_sizes(model, None, written)


FORMATS: dict[str, Callable[..., tuple[bool, dict[str, bytes]]]] = {
    "c": _c,
    "jax": _jax,
    "npz": _npz,
    "safetensors": _safetensors,
    "stablehlo": _stablehlo,
}
