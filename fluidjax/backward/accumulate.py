"""A variable that is used several times gets several gradients: give each its own name and sum them."""

from __future__ import annotations

from fluidjax.backward.names import EMPTY, in_args, is_grad, rename_all
from lowering.program import OpSpec


class _Accumulator:
    """Walks the grad ops in order; renames the second and later gradients of a variable and remembers the sums."""

    def __init__(self, ops: list[OpSpec], block_idx: int) -> None:
        self.ops = ops
        self.block_idx = block_idx
        self.parts: dict[str, list[str]] = {}  # gradient -> the names of its parts so far
        self.first: dict[str, int] = {}  # gradient -> index of the op that wrote the first part
        self.renamed: dict[str, int] = {}  # gradient -> number of names given out
        self.sums: dict[int, list[OpSpec]] = {}  # index of an op -> sums to be put before it

    def run(self) -> list[OpSpec]:
        for index, op in enumerate(self.ops):
            self._sum_before(index, in_args(op))
            self._rename_outputs(index, op)
        self._sum_before(len(self.ops), [name for name, parts in self.parts.items() if len(parts) > 1])
        result: list[OpSpec] = []
        for index, op in enumerate(self.ops):
            result += [*self.sums.get(index, ()), op]
        return result + self.sums.get(len(self.ops), [])

    def _sum_before(self, index: int, names: list[str]) -> None:
        for name in names:
            if not is_grad(name):
                continue
            parts = self.parts.setdefault(name, [])  # the order of first mention is the order of the last sums
            if len(parts) > 1:
                total = OpSpec("sum", {"X": list(parts)}, {"Out": [name]}, {"use_mkldnn": False})
                self.sums.setdefault(index, []).append(total)
                self.parts[name] = [name]

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
        if not parts:
            parts.append(name)
            self.first[name] = index
            return
        if len(parts) == 1:
            self._rename_first(index, op, slots, slot, position)
        fresh = self._fresh(name)
        op.outputs[slot] = [fresh if i == position else n for i, n in enumerate(op.outputs[slot])]
        parts.append(fresh)

    def _rename_first(self, index: int, op: OpSpec, slots: list[str], slot: str, position: int) -> None:
        """Rename the first part where it was written, and whoever read it since as a complete gradient."""
        name = op.outputs[slot][position]
        fresh = self._fresh(name)
        self.parts[name][0] = fresh
        rename_all(self.ops[self.first[name] : index], name, fresh)
        for sums in self.sums.values():
            rename_all(sums, name, fresh)
        for earlier in slots[: slots.index(slot)]:
            op.outputs[earlier] = [fresh if n == name else n for n in op.outputs[earlier]]
        before = [fresh if n == name else n for n in op.outputs[slot][:position]]
        op.outputs[slot] = before + op.outputs[slot][position:]


def sum_repeated_gradients(ops: list[OpSpec], block_idx: int) -> list[OpSpec]:
    """Rename gradients that several of ``ops`` write and add ``sum`` ops before their first reader.

    The parts are called ``x@GRAD@RENAME@block<block_idx>@<n>``. A part that was read before the next one was
    written (an op that gradients flow through in place) keeps its reader.
    """
    return _Accumulator(ops, block_idx).run()
