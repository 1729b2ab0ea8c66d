"""Ops that read and write files, on the host, through services of the front end (see ``lowering.engine.host``)."""

from __future__ import annotations

from typing import Any

from lowering.dtypes import SELECTED_ROWS
from lowering.engine.host import service
from lowering.registry import Long, Longs, Value, op


@op(out="kLookupTablePath?", slots={"k_lookup_table_path": "kLookupTablePath"}, kind="host", lod=None)
def save(x: Value, *, overwrite: bool = True, save_as_fp16: bool = False, file_path: str):
    """Save X, a tensor or SelectedRows, to ``file_path``; an existing file is an error unless ``overwrite``."""
    service("save")([x], file_path, overwrite, save_as_fp16)


@op(out="Y?", kind="host", lod=None)
def save_combine(
    x: list,
    *,
    overwrite: bool = True,
    save_as_fp16: bool = False,
    file_path: str,
    save_to_memory: bool = False,
):
    """Save all X to one file, in order; or with ``save_to_memory`` to Y, a uint8 tensor of its bytes."""
    return service("save")(x, None if save_to_memory else file_path, overwrite, save_as_fp16)


@op(kind="host", lod=None)
def load(*, load_as_fp16: bool = False, file_path: str, seek: Long = -1, shape: Longs = [], ctx: Any):  # noqa: B006
    """Out = the content of ``file_path``; if ``seek`` >= 0, only ``shape`` elements from element ``seek`` on."""
    kinds = [_is_sparse(ctx, 0)]
    return service("load")(file_path, kinds, load_as_fp16, seek, shape)[0]


@op(out="Out*", kind="host", lod=None)
def load_combine(*, load_as_fp16: bool = False, file_path: str, model_from_memory: bool = False, ctx: Any):
    """Out = the variables in a file, in order; with ``model_from_memory``, ``file_path`` is the file's content."""
    kinds = [_is_sparse(ctx, i) for i in range(ctx.arity("Out"))]
    source = file_path.encode("latin-1") if model_from_memory else file_path
    return service("load")(source, kinds, load_as_fp16, -1, ())


def _is_sparse(ctx: Any, index: int) -> bool:
    var = ctx.out_var("Out", index)
    return var is not None and var.type == SELECTED_ROWS
