"""Gradients of variables used several times: each part gets its own name, and they are summed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from fluidjax.backward.names import ADDING, EMPTY, forward_name, in_args, is_grad, out_args, rename_all
from lowering.program import GRAD, OpSpec

_NOWHERE = -1  # before the first op, and not to be renamed


class _Accumulator:
    """Visits the grad ops in order; renames the second and later gradients of a variable and records the sums."""

    def __init__(
        self,
        ops: list[OpSpec],
        block_idx: int,
        ends: Mapping[int, Iterable[str]],
        carried: Iterable[str],
        arrays: Iterable[str],
    ) -> None:
        self.ops = ops
        self.block_idx = block_idx
        self.ends = ends
        self.incoming = set(carried)  # incoming gradients that no op has used yet
        self.carried = set(carried)
        self.arrays = set(arrays)
        self.ended: set[str] = set()  # gradients of values that start after the op the walk has reached
        self.parts: dict[str, list[str]] = {}  # gradient -> the names of its parts so far
        self.first: dict[str, int] = {}  # gradient -> index of the op that wrote the first part
        self.renamed: dict[str, int] = {}  # gradient -> number of names assigned
        self.sums: dict[int, list[OpSpec]] = {}  # index of an op -> what to insert before it

    def run(self) -> list[OpSpec]:
        for index, op in enumerate(self.ops):
            self._end(index)
            self._hand_over(op)
            self._sum_before(index, in_args(op))
            self._rename_outputs(index, op)
            self._begin_at(index, op)
        self._end(len(self.ops))
        left = [name for name, parts in self.parts.items() if len(parts) > 1 and name not in self.ended]
        self._sum_before(len(self.ops), left)
        result: list[OpSpec] = []
        for index, op in enumerate(self.ops):
            result += [*self.sums.get(index, ()), op]
        return result + self.sums.get(len(self.ops), [])

    def _end(self, index: int) -> None:
        for name in self.ends.get(index, ()):
            if name not in self.carried and name not in self.ended:
                self._sum_before(index, [name])  # so that there is something to set to zero
            self.ended.add(name)
            self.incoming.discard(name)
            if name in self.carried or self.parts.get(name):
                self.sums.setdefault(index, []).append(zeros(name, name))

    def _hand_over(self, op: OpSpec) -> None:
        """A loop or branch ends the gradients of what it overwrites, even those its gradient block does not read."""
        for name in sorted(getattr(op, "overwrites", ())):
            live = name in self.incoming or (self.parts.get(name) and name not in self.ended)
            idle = all(output == EMPTY for output in out_args(op))
            if live and (idle or name not in in_args(op)):
                _pass_through(op, name)

    def _begin_at(self, index: int, op: OpSpec) -> None:
        """What a loop or branch overwrites has a gradient before it, even if nothing after it has used it."""
        for name in sorted(getattr(op, "overwrites", ())):
            if name in in_args(op) and not self.parts.get(name):
                self.parts[name], self.first[name] = [name], index

    def _sum_before(self, index: int, names: list[str]) -> None:
        for name in names:
            if not is_grad(name):
                continue
            parts = self.parts.setdefault(name, [])  # the order of first mention determines the order of the last sums
            if name in self.ended:
                self._nothing_yet(index, name)
            elif name in self.incoming:
                self._flow_in(name)
            elif len(parts) > 1:
                total = OpSpec("sum", {"X": list(parts)}, {"Out": [name]}, {"use_mkldnn": False})
                self.sums.setdefault(index, []).append(total)
                self.parts[name] = [name]

    def _nothing_yet(self, index: int, name: str) -> None:
        """An op reads the gradient of an unused value."""
        if name not in self.carried:
            self.sums.setdefault(index, []).append(zeros(name, forward_name(name)))
        self.ended.discard(name)
        self.parts[name], self.first[name] = [name], _NOWHERE

    def _flow_in(self, name: str) -> None:
        self.incoming.discard(name)
        self.parts[name], self.first[name] = [name], _NOWHERE

    def _fresh(self, name: str) -> str:
        count = self.renamed.get(name, 0)
        self.renamed[name] = count + 1
        return f"{name}@RENAME@block{self.block_idx}@{count}"

    def _rename_outputs(self, index: int, op: OpSpec) -> None:
        read = set(in_args(op))
        slots = sorted(op.outputs)
        for slot in slots:
            for position in range(len(op.outputs[slot])):
                name = op.outputs[slot][position]
                if is_grad(name) and name != EMPTY and name not in read:
                    self._add_part(index, op, slots, slot, position)

    def _add_part(self, index: int, op: OpSpec, slots: list[str], slot: str, position: int) -> None:
        name = op.outputs[slot][position]
        parts = self.parts.setdefault(name, [])
        if name in self.arrays and op.type in ADDING:
            return
        if name in self.ended:
            self.ended.discard(name)
            parts.clear()
        if name in self.incoming:
            self._flow_in(name)
            parts = self.parts[name]
        if not parts:
            parts.append(name)
            self.first[name] = index
            return
        if len(parts) == 1 and self.first[name] != _NOWHERE:
            self._rename_first(index, op, slots, slot, position)
        fresh = self._fresh(name)
        op.outputs[slot] = [fresh if i == position else n for i, n in enumerate(op.outputs[slot])]
        parts.append(fresh)

    def _rename_first(self, index: int, op: OpSpec, slots: list[str], slot: str, position: int) -> None:
        """Rename the first part where it was written, and in all ops that have since read it as a complete gradient."""
        name = op.outputs[slot][position]
        fresh = self._fresh(name)
        self.parts[name][0] = fresh
        rename_all(self.ops[self.first[name] : index], name, fresh)
        for at, sums in self.sums.items():
            if at > self.first[name]:
                rename_all(sums, name, fresh)
        for earlier in slots[: slots.index(slot)]:
            op.outputs[earlier] = [fresh if n == name else n for n in op.outputs[earlier]]
        before = [fresh if n == name else n for n in op.outputs[slot][:position]]
        op.outputs[slot] = before + op.outputs[slot][position:]


def _pass_through(op: OpSpec, name: str) -> None:
    """Let the gradient op of a loop or branch read and write gradient ``name``."""
    forward, inputs, outputs = forward_name(name), op.inputs, op.outputs
    slot = "X" if "X" in inputs else "Input"
    if name not in in_args(op):
        inputs[f"Out{GRAD}"] = [*inputs[f"Out{GRAD}"], name]
        op.attrs["original_output_grad"] = [*op.attrs["original_output_grad"], name]
    if forward not in inputs[slot]:
        inputs[slot], outputs[slot + GRAD] = [*inputs[slot], forward], [*outputs[slot + GRAD], EMPTY]
    pairs = zip(inputs[slot], outputs[slot + GRAD], strict=True)
    outputs[slot + GRAD] = [name if n == forward else gradient for n, gradient in pairs]


def zeros(name: str, like: str) -> OpSpec:
    """Fill gradient ``name`` with zeros in the shape of ``like``."""
    return OpSpec("fill_zeros_like", {"X": [like]}, {"Out": [name]}, {})


def sum_repeated_gradients(
    ops: list[OpSpec],
    block_idx: int,
    ends: Mapping[int, Iterable[str]] = MappingProxyType({}),
    carried: Iterable[str] = (),
    arrays: Iterable[str] = (),
) -> list[OpSpec]:
    """Rename gradients written by several of ``ops``, and add ``sum`` ops before their first reader.

    The parts are called ``x@GRAD@RENAME@block<block_idx>@<n>``. A part that was read before the next one was
    written (by an op through which gradients flow in place) keeps its reader.

    A gradient that ends is set to zero, since the op that would write it earlier may turn out to read no gradient.
    ``prune.drop_clearing`` and ``variables.declare`` remove such ops if they are not needed.

    Args:
        ends: index of an op -> gradients whose variable holds a different value from there on; see ``lives``.
        carried: gradients that flow between steps of the loop, or past the branch, whose gradient block this is.
        arrays: gradients of outer tensor arrays: the block's grad ops add to the elements that flow in.
    """
    return _Accumulator(ops, block_idx, ends, carried, arrays).run()
