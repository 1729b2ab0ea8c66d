"""Ops that look up rows of tables held by servers, as programs written by hand have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lowering.errors import OpError
from lowering.program import OpView

_LOOKUPS = {"lookup_table", "lookup_table_v2"}


def with_remote_rows(ops: Sequence[OpView]) -> list[OpView]:
    """The ops, where look-ups with ``remote_prefetch`` and an ``epmap`` ask the servers and do not read their own W.

    Out is [number of ids, width] for any of them. hierarchical_sigmoid reads its own W all the
    same, as in Fluid. Raises OpError for a nce, whose rows nobody fetches.
    """
    return [_asked(op) if op.attrs.get("remote_prefetch") and op.attrs.get("epmap") else op for op in ops]


def _asked(op: OpView) -> OpView:
    if op.type == "nce":
        raise OpError(
            "op nce with remote_prefetch and an epmap: its weights are held by servers\n  expected: weights of the"
            f" trainer\n  received: epmap {list(op.attrs['epmap'])}\n  what to do: leave out epmap, and get the weights"
            " by recv before the op"
        )
    if op.type not in _LOOKUPS:
        return op
    kept = ("table_names", "height_sections", "trainer_id", "padding_idx")
    attrs = {name: op.attrs[name] for name in kept if name in op.attrs}
    attrs |= {"endpoints": op.attrs["epmap"], "lookup_table_version": op.type}
    return replace(
        op,
        type="distributed_lookup_table",
        inputs={"Ids": op.inputs["Ids"], "W": op.inputs["W"]},
        outputs={"Outputs": op.outputs["Out"]},
        attrs=attrs,
    )
