"""Exporting a saved model to other formats: weights as .npz or .safetensors, the whole as StableHLO or C.

Each file is read back and compared before export succeeds.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.scope import Scope
from fluidjax.export import stablehlo
from fluidjax.export.c.convert import draw_feeds, files_of
from fluidjax.export.function import ExportError, JaxFunction, data_needed, to_jax
from fluidjax.export.python import convert as python
from fluidjax.export.sizes import ROOM, Given, Shapes, own_sizes, with_sizes
from fluidjax.files import atomic, inference
from fluidjax.framework import Program
from lowering.engine.x64 import in_x64

_EXECUTABLE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"MZ")
PLATFORMS = ("cpu", "cuda", "tpu")


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
    model: Model,
    *,
    platforms: Sequence[str] = PLATFORMS,
    batch: int | None = None,
    rows: int | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[bool, dict[str, bytes]]:
    """``model.jax_export`` (``jax.export.deserialize``), ``model.mlir`` (text), ``weights.npz``, ``signature.json``.

    Called with the weights and the inputs by name, and with a key's data (uint32 [2]) if the model draws. A ragged
    input is a dict: ``data`` [rows, ...], with room for more rows than there are, and ``lod``, the int32 offsets of
    each level; an output whose rows values decide is one, too, with ``nrows``.

    Args:
        platforms: of cpu, cuda, tpu.
        batch: replaces sizes that the model leaves open; None: a symbol each, with one shared by the first dims.
        rows: the room of a ragged input; None: a symbol, or 16 per sequence where ``batch`` is given.
        sizes: input -> sizes of its open dims, which ``batch`` then does not replace.
    """
    _needed("flatbuffers")
    function, parameters = model.function("cpu" if tuple(platforms) == ("cpu",) else "gpu")
    given = Given(batch, rows, sizes or {})
    content, text, signature = stablehlo.exported(model.program, function, parameters, given, platforms)
    return True, {
        "model.jax_export": content,
        "model.mlir": text.encode(),
        "weights.npz": _npz(model)[1]["weights"],
        "signature.json": json.dumps(signature, indent=1).encode(),
    }


def _c(
    model: Model,
    *,
    batch: int | None = None,
    rows: int | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
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
        sizes=sizes or {},
        train=train,
        inside=inside,
        check=check,
    )


def _jax(
    model: Model,
    *,
    batch: int | None = None,
    rows: int | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[bool, dict[str, bytes]]:
    """``model.py``, a module of plain JAX, and ``weights.npz``. See ``fluidjax.export.python``.

    Args:
        batch: replaces sizes that the model leaves open; None: they stay open, if no input is ragged.
        rows: the most rows of a ragged input.
        sizes: input -> sizes of its open dims, which ``batch`` then does not replace.
    """
    variables = model.program.global_block().vars
    ragged = any(variables[name].lod_level for name in model.feeds)
    fixed = ragged or batch is not None
    own = own_sizes(model.program, model.feeds, sizes or {})
    batches = [batch or 2] if fixed else [2, 3]

    def written(shapes: Shapes | None, lengths: Sequence[int | None]) -> dict[str, bytes]:
        drawn = [
            draw_feeds(model.program, model.feeds, *size, own)
            for size in zip(batches, [rows] * 2, lengths, strict=False)
        ]
        given: dict[str, Any] = {"draws": drawn, "room": rows or ROOM * batches[0], "name": model.name}
        return python.files_of(model.program, model.feeds, model.fetches, model.scope, shapes=shapes, **given)

    if fixed:
        return True, written(None, [None])
    return True, with_sizes(model.program, model.feeds, Given(own=sizes or {}), written)


FORMATS: dict[str, Callable[..., tuple[bool, dict[str, bytes]]]] = {
    "c": _c,
    "jax": _jax,
    "npz": _npz,
    "safetensors": _safetensors,
    "stablehlo": _stablehlo,
}
