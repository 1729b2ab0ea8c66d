"""Ops that look up rows of tables held by servers: programs written by hand, or transpiled, have them.

``nce`` becomes ops that draw the classes, ask for their rows, and use these; its gradient uses the same ones. Those of
``hierarchical_sigmoid`` are filled into its own W, as in Fluid::

    SampleLabels = nce_classes(Label)                          Nodes = tree_nodes(Label, PathTable)
    Rows = distributed_lookup_table(SampleLabels, Weight)      Rows = distributed_lookup_table(Nodes, W)
    Cost = nce_of_rows(Input, Weight, SampleLabels, Rows ...)  W_Out = rows_filled_in(W, Nodes, Rows)
                                                               Out = hierarchical_sigmoid(X, W_Out ...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lowering.program import BOOKKEEPING, OpView

_LOOKUPS = {"lookup_table", "lookup_table_v2"}


def with_remote_rows(ops: Sequence[OpView]) -> list[OpView]:
    """The ops, where those with ``remote_prefetch`` and an ``epmap`` ask the servers for rows of their weights.

    Out of a look-up is [number of ids, width]. What is asked for a nce counts for its gradient, too.
    """
    return list(_written(ops))


def _written(ops: Sequence[OpView]) -> Iterator[OpView]:
    rows_of: dict[str, str] = {}  # the classes of each nce -> their rows
    for op in ops:
        remote = op.attrs.get("remote_prefetch") and op.attrs.get("epmap")
        if op.type == "nce_grad" and op.inputs["SampleLabels"][0] in rows_of:
            yield replace(op, type="nce_of_rows_grad", inputs=_with_rows(op.inputs, rows_of))
        elif not remote:
            yield op
        elif op.type in _LOOKUPS:
            yield _asked(op, op.inputs["Ids"], op.inputs["W"], op.outputs["Out"])
        elif op.type == "nce":
            yield from _sampled(op, rows_of)
        elif op.type == "hierarchical_sigmoid":
            yield from _filled(op)
        else:
            yield op


def _with_rows(inputs: Mapping[str, Sequence[str]], rows_of: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    return {**inputs, "Rows": [rows_of[inputs["SampleLabels"][0]]]}


def _asked(op: OpView, ids: Sequence[str], table: Sequence[str], out: Sequence[str]) -> OpView:
    """A look-up for another op, of which it has the attributes."""
    kept = ("table_names", "height_sections", "trainer_id", "padding_idx", *BOOKKEEPING)
    attrs = {name: op.attrs[name] for name in kept if name in op.attrs}
    version = op.type if op.type in _LOOKUPS else "lookup_table"
    attrs |= {"endpoints": op.attrs["epmap"], "lookup_table_version": version}
    slots = {"Ids": ids, "W": table}, {"Outputs": out}
    return replace(op, type="distributed_lookup_table", inputs=slots[0], outputs=slots[1], attrs=attrs)


def _sampled(op: OpView, rows_of: dict[str, str]) -> Iterator[OpView]:
    classes = [*op.outputs.get("SampleLabels", ()), f"{op.outputs['Cost'][0]}@CLASSES"][:1]
    rows = rows_of[classes[0]] = f"{classes[0]}@ROWS"
    yield replace(op, type="nce_classes", outputs={"SampleLabels": classes})
    yield _asked(op, classes, op.inputs["Weight"], [rows])
    inputs = _with_rows({**op.inputs, "SampleLabels": classes}, rows_of)
    yield replace(op, type="nce_of_rows", inputs=inputs)


def _filled(op: OpView) -> Iterator[OpView]:
    out = op.outputs["Out"][0]
    nodes, rows = [f"{out}@NODES"], [f"{out}@ROWS"]
    filled = [*op.outputs.get("W_Out", ()), f"{out}@W"][:1]
    yield replace(op, type="tree_nodes", outputs={"Nodes": nodes})
    yield _asked(op, nodes, op.inputs["W"], rows)
    slots = {"X": op.inputs["W"], "Ids": nodes, "Rows": rows}
    yield replace(op, type="rows_filled_in", inputs=slots, outputs={"Out": filled}, attrs={})
    outputs = {slot: names for slot, names in op.outputs.items() if slot != "W_Out"}
    yield replace(op, inputs={**op.inputs, "W": filled}, outputs=outputs)
