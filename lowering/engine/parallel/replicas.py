"""A program for several devices as a single program: each device's ops on its own variables, and sums of gradients.

Fluid runs all ops on every device, each on its share of the batch, and sums every parameter's gradient over the
devices once the backward pass has completed it. Here the ops are instead written out for each device: what differs
between devices has one name per device, what is the same on all is computed once, under its own name. Whatever
runs programs can treat this as a program like any other.

::

    y  = mul(x, w)                      y = mul(x, w);       y@DEVICE_1 = mul(x@DEVICE_1, w)
    w@GRAD = mul_grad(x, y@GRAD)        w@GRAD = ...;        w@GRAD@DEVICE_1 = ...
                                        w@GRAD = sum(w@GRAD, w@GRAD@DEVICE_1)
    w  = sgd(w, w@GRAD)                 w = sgd(w, w@GRAD)

Device 0 keeps the program's names, so that the scope holds its values, as in Fluid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lowering.engine.dataflow import sub_blocks
from lowering.engine.parallel.devices import Devices, OwnVariables, Writer, on_device, own_and_sums
from lowering.program import EMPTY, GRAD, ROLE_BACKWARD, BlockView, OpView, ProgramView
from lowering.registry import get_op

Rename = Callable[[str], str]

# An attribute with the names used in the op's block.
_NAMES_INSIDE = "original_output_grad"


@dataclass(frozen=True, eq=False)
class Replicated(OwnVariables):
    """A program written out for several devices, each of which has variables of its own."""

    program: ProgramView

    def state(self) -> dict[str, list[str]]:
        """The names, on the other devices, of each device's own variables that the scope keeps."""
        return self.copies([v.name for v in self.program.blocks[0].vars.values() if v.persistable])


def replicate(program: ProgramView, devices: Devices, fed: Collection[str]) -> Replicated:
    """Write a program out for several devices.

    Args:
        program: the program of one device.
        devices: the number of devices, and what happens between them.
        fed: what each device is fed separately.
    """
    own, sums = own_and_sums(program, devices, fed)
    writer = ReplicaWriter(program, devices, sums, own)
    return Replicated(own, frozenset(sums), devices.count, writer.written())


class ReplicaWriter(Writer):
    """Writes the ops of all devices into one program."""

    def __init__(self, program: ProgramView, devices: Devices, sums: Mapping[str, int], own: frozenset[str]):
        super().__init__(program, devices, sums, own)
        self._blocks = list(program.blocks)
        self._cloned: dict[tuple[int, int], int] = {}

    def written(self) -> ProgramView:
        """The program of all devices."""
        outermost = self._program.blocks[0]
        for op in outermost.ops:
            self._write(op)
        self._blocks[0] = replace(outermost, ops=tuple(self._ops), vars=self._variables(outermost))
        return replace(self._program, blocks=tuple(self._blocks))

    def _variables(self, block: BlockView) -> dict[str, Any]:
        found = dict(block.vars)
        for name in filter(self._own.__contains__, block.vars):  # in the order of the program
            for device in range(1, self._devices.count):
                named = on_device(name, device, self._own)
                found[named] = replace(block.vars[name], name=named)
        return found

    def _write_differing(self, op: OpView) -> None:
        if self._is_joint(op):
            self._write_joint(op)
        else:
            for device in range(self._devices.count):
                self._add(self.renamed(op, device))

    def _write_joint(self, op: OpView) -> None:
        """Normalise the batches of all devices as one, or compute part of the gradient of that."""
        batch = {slot: names[0] for slot, names in op.inputs.items() if slot in ("X", f"Y{GRAD}") and names}
        parts = {"Y", f"X{GRAD}"} & op.outputs.keys()
        shares = [f for f in op.output_names() if f in self._own and not any(f in op.outputs[slot] for slot in parts)]
        for name in batch.values():
            self._add(OpView("concat", {"X": self._names(name)}, {"Out": [_joined(name)]}, {"axis": 0}))
        inputs = {**op.inputs, **{slot: [_joined(name)] for slot, name in batch.items()}}
        joined = {*shares, *(n for slot in parts for n in op.outputs[slot])}
        outputs = _slots(op.outputs, lambda n: _joined(n) if n in joined else n)
        self._add(replace(op, inputs=inputs, outputs=outputs))
        for name in (n for slot in parts for n in op.outputs[slot] if n != EMPTY):
            cut = {"X": self._names(batch["X"]), f"Out{GRAD}": [_joined(name)]}
            self._add(OpView("concat_grad", cut, {f"X{GRAD}": self._names(name)}, {"axis": 0}))
        for name in shares:  # the value computed is their sum
            for part in self._names(name):
                attrs = {"scale": 1.0 / self._devices.count, "op_role": ROLE_BACKWARD}
                self._add(OpView("scale", {"X": [_joined(name)]}, {"Out": [part]}, attrs))

    def _names(self, name: str) -> list[str]:
        return [on_device(name, i, self._own) if name in self._own else name for i in range(self._devices.count)]

    def _add_sum(self, name: str, roles: Mapping[str, Any]) -> None:
        self._add(OpView("sum", {"X": self._names(name)}, {"Out": [name]}, dict(roles)))
        if self._devices.processes > 1:
            self._add(OpView("sum_over_devices", {"X": [name]}, {"Out": [name]}, dict(roles)))
        if name not in self._sums:
            for other in self._names(name)[1:]:
                self._add(OpView("assign", {"X": [name]}, {"Out": [other]}, dict(roles)))

    # --- one device's version of an op ----------------------------------------------------------------------------

    def renamed(self, op: OpView, device: int) -> OpView:
        """An op of the outermost block for one device."""
        if device == 0:
            return op
        return self._version(op, device, lambda n: self._outermost(n, op, device))

    def _outermost(self, name: str, op: OpView, device: int) -> str:
        summed = self._sums.get(name, op.index) < op.index
        return name if summed or name not in self._own else on_device(name, device, self._own)

    def _version(self, op: OpView, device: int, rename: Rename) -> OpView:
        inner = sub_blocks(op)
        attrs = op.attrs
        if inner:
            clones = {idx: self._clone(idx, device) for idx in inner}
            attrs = {**op.attrs, **_block_attrs(op, clones)}
            if op.attrs.get(_NAMES_INSIDE):
                attrs[_NAMES_INSIDE] = [*map(self._inside(inner[0], device), op.attrs[_NAMES_INSIDE])]
        return replace(op, inputs=_slots(op.inputs, rename), outputs=_slots(op.outputs, rename), attrs=attrs)

    def _clone(self, idx: int, device: int) -> int:
        """The index of a device's own copy of a nested block."""
        if (idx, device) not in self._cloned:
            block = self._program.blocks[idx]
            at = self._cloned[idx, device] = len(self._blocks)
            self._blocks.append(block)
            ops = (replace(self._version(op, device, self._inside(idx, device)), block_idx=at) for op in block.ops)
            self._blocks[at] = BlockView(
                at,
                self._cloned.get((block.parent_idx, device), block.parent_idx),
                tuple(ops),
                block.vars,
                self._cloned.get((block.forward_idx, device), block.forward_idx),
            )
        return self._cloned[idx, device]

    def _inside(self, idx: int, device: int) -> Rename:
        """Names in a block: a gradient is treated like the variable it belongs to."""

        def rename(name: str) -> str:
            base = name.partition(GRAD)[0]
            around = base in self._own and self._is_outermost(idx, base)
            return on_device(name, device, (base,)) if around else name

        return rename

    def _is_outermost(self, idx: int, name: str) -> bool:
        """Whether ``name`` in a block refers to a variable of the outermost one."""
        pending = [idx]
        while pending:
            block = self._program.blocks[pending.pop()]
            if block.idx != 0:
                if name in block.vars:
                    return False
                pending += [i for i in (block.parent_idx, block.forward_idx) if i > 0]
        return True


def _joined(name: str) -> str:
    """The name of all devices' batches as one."""
    return f"{name}@DEVICES"


def _slots(slots: Mapping[str, Sequence[str]], rename: Rename) -> dict[str, list[str]]:
    return {slot: [n if n == EMPTY else rename(n) for n in names] for slot, names in slots.items()}


def _block_attrs(op: OpView, clones: Mapping[int, int]) -> dict[str, Any]:
    """The attributes of ``op`` that refer to blocks, with their replacements."""
    kinds = {name: spec.type for name, spec in get_op(op.type).attrs.items() if name in op.attrs}
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        value = op.attrs[name]
        if value is not None and kind == "BLOCK":
            found[name] = type(value)(clones[int(value)])
        elif value is not None and kind == "BLOCKS":
            found[name] = [type(v)(clones[int(v)]) for v in value]
    return found
