"""Ops through which values enter and leave a program. The executor does their work before and after a run."""

from __future__ import annotations

from typing import Any

from lowering.engine.host import service
from lowering.registry import Value, op


@op(kind="host", lod=None)
def feed(x: Value, *, col: int, ctx: Any):
    """Out = the value fed in column ``col``."""
    return x[col] if isinstance(x, (list, tuple)) else ctx.env.get(ctx.op.outputs["Out"][0])


@op(kind="host", lod=None)
def fetch(x: Value, *, col: int):
    """Out = X, to be returned to the caller in column ``col``."""
    return x


@op(out="Out*", slots={"blocking_queue": "blocking_queue"}, kind="host", lod=None)
def create_py_reader(
    blocking_queue: Value,
    *,
    shape_concat: list[int],
    ranks: list[int],
    lod_levels: list[int],
    dtypes: list[int],
    need_check_feed: list[int],
    use_data_config: bool = True,
    device_index: int = 0,
    device_count: int = 1,
):
    """Out = a reader of the queue filled by Python; the front end keeps both."""


@op(kind="host", lod=None)
def create_double_buffer_reader(underlying_reader: Value, *, place: str = "AUTO"):
    """Out = a prefetching reader; loaders prefetch anyway."""


@op(out="Out*", kind="host", lod=None)
def read(reader: Value, *, throw_eof_exp: bool = True, infer_out: bool = True, drop_last: bool = True, ctx: Any):
    """Out = the next batch of the reader."""
    return service("read")(reader, ctx.op.outputs["Out"])
