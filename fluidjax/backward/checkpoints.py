"""Recomputation: keep only checkpoints of the forward pass, and recompute the rest in the backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import lowering
from fluidjax import unique_name
from fluidjax.backward.accumulate import sum_repeated_gradients
from fluidjax.backward.descs import Pending, append_pending, device_of
from fluidjax.backward.names import in_args, out_args, rename_all
from fluidjax.backward.overwritten import check_in_place
from fluidjax.backward.paths import sub_block_of
from fluidjax.backward.prune import drop_stopped
from fluidjax.framework.view import op_view
from lowering.program import OpSpec

if TYPE_CHECKING:
    from fluidjax.backward.walk import Walk
    from fluidjax.framework import Block, Operator, Variable

Span = tuple[int, int]


class ProgramStats:
    """The writers and readers of each variable among ``ops`` (the forward ops of ``block`` to be differentiated)."""

    def __init__(self, block: Block, ops: Iterable[Operator]) -> None:
        self.block = block
        self.ops = list(ops)
        self.op_deps: dict[int, dict[str, list[int]]] = {}
        self.var_op_deps: dict[str, dict[str, list[int]]] = {}

    def build_stats(self) -> None:
        """Fill ``var_op_deps`` (variable -> indices of its writers and readers) and ``op_deps``."""
        for index, op in enumerate(self.ops):
            before = [i for name in op.input_arg_names for i in self._uses(name, "var_as_output_ops")]
            self.op_deps[index] = {"in_ops": sorted(set(before)), "out_ops": []}
            for i in self.op_deps[index]["in_ops"]:
                self.op_deps[i]["out_ops"].append(index)
            for name in op.input_arg_names:
                self._note(name)["var_as_input_ops"].append(index)
            for name in op.output_arg_names:
                self._note(name)["var_as_output_ops"].append(index)

    def _note(self, name: str) -> dict[str, list[int]]:
        return self.var_op_deps.setdefault(name, {"var_as_input_ops": [], "var_as_output_ops": []})

    def _uses(self, name: str, role: str) -> list[int]:
        return self.var_op_deps.get(name, {}).get(role, [])

    def get_input_nodes(self) -> list[str]:
        """Variables that are read but never written: data and parameters."""
        return [
            name
            for name, uses in self.var_op_deps.items()
            if not uses["var_as_output_ops"] and uses["var_as_input_ops"]
        ]

    def get_reserved_vars(self) -> list[str]:
        """Outputs of ``seed`` ops, since a recomputed dropout must use the same mask."""
        return [name for op in self.ops if op.type == "seed" for name in op.output_arg_names]

    def get_out_of_subgraph_vars(self, begin_op_idx: int, end_op_idx: int) -> list[str]:
        """Variables written by ops [begin, end) and read by ops from ``end`` on."""
        found = []
        for op in self.ops[begin_op_idx:end_op_idx]:
            for name in op.output_arg_names:
                if any(i >= end_op_idx for i in self._uses(name, "var_as_input_ops")):
                    found.append(name)
        return found

    def is_subgraph(self, var_group1: list[str], var_group2: list[str]) -> tuple[bool, int, int]:
        """(whether there are ops between the groups, the first reader of group 1, the last writer of group 2)."""
        first = min((i for n in var_group1 for i in self._uses(n, "var_as_input_ops")), default=len(self.ops))
        last = max((i for n in var_group2 for i in self._uses(n, "var_as_output_ops")), default=-1)
        return first < last, first, last

    def sort_checkpoints(self, checkpoints_name: Iterable[str]) -> list[str]:
        """Names in the order in which they are (last) computed; names not used by any op of the path are dropped."""
        position = {}
        for name in checkpoints_name:
            if name in self.var_op_deps:
                position[name] = max(self._uses(name, "var_as_output_ops"), default=-1)
        return sorted(position, key=position.__getitem__)

    def modify_forward_desc_for_recompute(self) -> None:
        """Give each dropout with its own seed a ``seed`` op, so that a second run repeats the first."""
        for op in [op for op in self.ops if op.type == "dropout" and not op.input("Seed")]:
            self._insert_seed(op)

    def _insert_seed(self, op: Operator) -> None:
        block = self.block
        name = unique_name.generate("seed") + ".tmp_0"
        block.create_var(name=name, dtype="int32", shape=[1], persistable=False, stop_gradient=False)
        seed = op.attr("seed") if op.has_attr("fix_seed") and op.attr("fix_seed") else 0
        attrs = {"seed": int(seed), "op_device": device_of(op)}
        place = next(i for i, o in enumerate(block.ops) if o is op)
        inserted = block._insert_op(place, type="seed", inputs={}, outputs={"Out": [name]}, attrs=attrs)
        op.desc.set_input("Seed", [name])
        self.ops.insert(next(i for i, o in enumerate(self.ops) if o is op), inserted)


def serialize_op_decs(op_desc: Any) -> str:
    """An OpDesc as text."""
    return str(op_desc.proto)


def append_with_checkpoints(
    walk: Walk,
    block: Block,
    ops: list[Operator],
    target: Block,
    starts: set[str] | None,
    checkpoints: Iterable[Variable | str],
) -> None:
    """Append the grad ops of ``ops``; between checkpoints, forward ops are repeated before their gradients.

    A recomputed variable ``x`` is called ``x.subprog_<n>``, with segments numbered from the last. The lowering puts an
    optimization barrier before each recomputed segment, without which XLA would merge it with the original.

    Raises ValueError for an op with a sub-block on the path, and for one that overwrites a value needed again.
    """
    for op in ops:
        if sub_block_of(op) is not None:
            raise ValueError(
                f"recompute: op {op.type} has a sub-block, which cannot be recomputed; expected plain ops between the "
                "loss and its parameters. Differentiate without checkpoints"
            )
    check_in_place(block, ops, lambda op: lowering.grad_ops(op_view(op), walk.stopped[block.idx])[0])
    stats = ProgramStats(block, ops)
    stats.modify_forward_desc_for_recompute()
    stats.build_stats()
    names = stats.sort_checkpoints({item if isinstance(item, str) else item.name for item in checkpoints})
    segments = _segments(stats, names)
    held = {name for begin, end in segments for name in stats.get_out_of_subgraph_vars(begin, end)}
    held.update(stats.get_reserved_vars(), stats.get_input_nodes(), names)
    pending = _Recompute(walk, block, stats.ops, target, starts, held).run(segments)
    pending = sum_repeated_gradients(pending, block.idx)
    pending = drop_stopped(pending, walk.stopped[block.idx])
    append_pending(target, pending, walk.callbacks, walk.grad_to_var)


def _segments(stats: ProgramStats, names: list[str]) -> list[Span]:
    """Ranges of op indices to recompute, first to last."""
    if len(names) == 1:
        last = max(stats.var_op_deps[names[0]]["var_as_output_ops"], default=-1)
        return [(0, last + 1)] if last > 0 else []
    segments = []
    for before, after in zip(names, names[1:], strict=False):
        found, first, last = stats.is_subgraph([before], [after])
        if found:
            segments.append((first, last + 1))
    if segments and segments[0][0] != 0:
        segments.insert(0, (0, segments[0][0]))
    return segments


class _Recompute:
    """Writes recomputed forward ops and grad ops, segment by segment from the last."""

    def __init__(
        self, walk: Walk, block: Block, ops: list[Operator], target: Block, starts: set[str] | None, held: set[str]
    ) -> None:
        self.walk, self.block, self.ops, self.held = walk, block, ops, held
        self.target, self.starts = target, starts
        self.renamed: dict[str, str] = {}
        self.pending: list[OpSpec] = []

    def run(self, segments: list[Span]) -> list[OpSpec]:
        end = len(self.ops)
        for number, (begin, stop) in enumerate(reversed(segments)):
            self._gradients(self.ops[stop:end])
            self._again(self.ops[begin:stop], f".subprog_{number}")
            end = begin
        self._gradients(self.ops[0:end])
        return self.pending

    def _gradients(self, ops: list[Operator]) -> None:
        added = self.walk.grad_ops(self.block, ops, self.target, self.starts)
        self._rename(added)
        self.pending += added

    def _again(self, ops: list[Operator], suffix: str) -> None:
        for op in ops:
            for name in op.output_arg_names:
                var = self.block._find_var_recursive(name)
                kept = name in self.held or (var is not None and var.persistable)
                if not kept and name not in self.renamed:
                    self.renamed[name] = name + suffix
        again = []
        for op in ops:
            if any(name in self.renamed for name in op.output_arg_names):
                view = op_view(op)
                inputs = {slot: list(names) for slot, names in view.inputs.items()}
                outputs = {slot: list(names) for slot, names in view.outputs.items()}
                again.append(Pending(op.type, inputs, outputs, dict(view.attrs), op))
        self._rename(again)
        self.pending += again
        self._gradients(ops)

    def _rename(self, ops: Sequence[OpSpec]) -> None:
        for op in ops:
            for name in {*in_args(op), *out_args(op)}:
                if name in self.renamed:
                    rename_all([op], name, self.renamed[name])
