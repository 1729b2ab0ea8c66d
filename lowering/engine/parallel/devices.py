"""How a program differs between the devices that run it, each on its share of the batch, all with the same state."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lowering.engine.dataflow import MARKERS, Use, definitions, sub_blocks, uses
from lowering.program import GRAD, ROLE_BACKWARD, ROLE_LOSS, OpView, ProgramView
from lowering.registry import get_op

# What follows the name of the forward variable in the name of a gradient, or of a recomputed value.
_DERIVED = re.compile(rf"{GRAD}|\.subprog_\d+$")


@dataclass(frozen=True)
class Devices:
    """How a program is run on several devices.

    Attributes:
        count: the number of devices.
        loss_scale: the loss's gradient on each; None leaves it to the user, who feeds it.
        sync_batch_norm: whether batches are normalised over all devices.
        processes: the number of processes with as many devices each; gradients are summed over all of them.
    """

    count: int
    loss_scale: float | None = 1.0
    sync_batch_norm: bool = False
    processes: int = 1


def on_device(name: str, device: int, own: Collection[str]) -> str:
    """The name of a variable of which each device has its own.

    Its gradient is named after it, so that one can be found from the other on every device.
    """
    if device == 0:
        return name
    match = _DERIVED.search(name)
    base = name[: match.start()] if match else name
    known = base if base in own else name
    return f"{known}@DEVICE_{device}{name[len(known) :]}"


@dataclass(frozen=True, eq=False)
class OwnVariables:
    """The variables of which each device has its own.

    Attributes:
        own: their names in the outermost block.
        sums: those of them that are equal on all devices in the end.
        count: the number of devices.
    """

    own: frozenset[str]
    sums: frozenset[str]
    count: int

    def names(self, name: str) -> list[str]:
        """The variable's names on the devices, in order, at the end of a run."""
        differs = name in self.own and name not in self.sums
        return [on_device(name, i, self.own) if differs else name for i in range(self.count)]

    def copies(self, persistable: Collection[str]) -> dict[str, list[str]]:
        """The names, on the other devices, of each device's own variables among these that the scope keeps."""
        return {n: self.names(n)[1:] for n in sorted((self.own - self.sums).intersection(persistable))}


def completed(program: ProgramView) -> dict[str, int]:
    """The parameters' gradients, and the index of the op that completes each."""
    found = {}
    for op in program.blocks[0].ops:
        if op.is_backward:
            pairs = op.attrs.get("op_role_var") or ()
            found.update({g: op.index for g in pairs[1::2] if g in op.output_names()})
    return found


def own_and_sums(program: ProgramView, devices: Devices, fed: Collection[str]) -> tuple[frozenset[str], dict[str, int]]:
    """What devices have for themselves, and the gradients among it that are the same on all once they are summed.

    Sums that an op changes afterwards by what devices have for themselves, such as a decay of parameters that learn at
    rates of their own, stay each device's own.
    """
    sums = completed(program)
    while True:
        own = own_of(program, devices, sums, fed)
        differing = (op for op in program.blocks[0].ops if op.type not in MARKERS and differs(program, op, own, sums))
        changed = {n for op in differing for n in definitions(program, op) if sums.get(n, op.index) < op.index}
        if not changed:
            return own, sums
        sums = {n: at for n, at in sums.items() if n not in changed}


def starts_backward(op: OpView) -> bool:
    """Whether an op creates the loss's gradient."""
    return int(op.attrs.get("op_role", 0)) == ROLE_BACKWARD | ROLE_LOSS


def own_of(program: ProgramView, devices: Devices, sums: Mapping[str, int], fed: Collection[str]) -> frozenset[str]:
    """What differs between devices: what they are fed or draw, and everything computed from it except the sums."""
    own = {*fed, *sums}
    ops = [op for op in program.blocks[0].ops if op.type not in MARKERS and not starts_backward(op)]
    while True:
        before = len(own)
        for op in ops:
            if differs(program, op, own, sums):
                written = op.outputs["Y"] if is_joint(op, devices) else definitions(program, op)
                own.update(n for n in written if sums.get(n, op.index) >= op.index)
        if len(own) == before:
            return frozenset(own)


def differs(program: ProgramView, op: OpView, own: Collection[str], sums: Mapping[str, int]) -> bool:
    """Whether an op must run on each device."""
    read = (n for n, use in uses(program, op).items() if use > Use.HINT)
    before = (n for n in read if n in own and sums.get(n, op.index) >= op.index)
    written = (n for n in definitions(program, op) if n in own and sums.get(n, op.index) >= op.index)
    return any(True for _ in before) or any(True for _ in written) or draws(program, op)


def is_joint(op: OpView, devices: Devices) -> bool:
    """Whether an op treats the batches of all devices as one, and leaves the same statistics on all."""
    running = op.attrs.get("use_global_stats") or (op.attrs.get("is_test") and not op.attrs.get("trainable_statistics"))
    return _is_synced(op, devices, "") and not running


def is_joint_gradient(op: OpView, devices: Devices) -> bool:
    """Whether an op is the gradient of one that treats the batches of all devices as one."""
    return _is_synced(op, devices, "_grad") and not op.attrs.get("use_global_stats")


def _is_synced(op: OpView, devices: Devices, suffix: str) -> bool:
    asked = devices.sync_batch_norm and op.type == f"batch_norm{suffix}"
    return asked or op.type == f"sync_batch_norm{suffix}"


def draws(program: ProgramView, op: OpView) -> bool:
    """Whether an op draws numbers that are not fixed by a seed of its own."""
    definition = get_op(op.type)
    if "key" in definition.special and not definition.own_seed(op.attrs):
        return True
    return any(draws(program, inner) for idx in sub_blocks(op) for inner in program.blocks[idx].ops)


def loss_gradient(program: ProgramView, devices: Devices, op: OpView) -> list[OpView]:
    """What creates the loss's gradient on each device, in place of ``op``; nothing if the user feeds it."""
    found = []
    for name in op.output_names() if devices.loss_scale is not None else ():
        variable = program.find_var(0, name)
        dtype = variable.dtype if variable is not None else 5
        shape = op.attrs.get("shape", [1])
        attrs = {"shape": shape, "dtype": dtype, "value": devices.loss_scale, "op_role": ROLE_BACKWARD}
        found.append(OpView("fill_constant", op.inputs, {"Out": [name]}, attrs))
    return found


class Writer:
    """Writes the ops of several devices, in the order of the program."""

    def __init__(self, program: ProgramView, devices: Devices, sums: Mapping[str, int], own: frozenset[str]):
        self._program = program
        self._devices = devices
        self._sums = sums
        self._own = own
        self._completed = completed(program)
        self._ops: list[OpView] = []

    def _write(self, op: OpView) -> None:
        if op.type in MARKERS:
            return
        if starts_backward(op):
            for scaled in loss_gradient(self._program, self._devices, op):
                self._add(scaled)
        elif differs(self._program, op, self._own, self._sums):
            self._write_differing(op)
        else:
            self._write_alike(op)
        roles = {k: op.attrs[k] for k in ("op_role", "op_callstack") if k in op.attrs}
        for name in op.output_names():
            if self._completed.get(name) == op.index:
                self._add_sum(name, roles)

    def _is_joint(self, op: OpView) -> bool:
        return is_joint(op, self._devices) or is_joint_gradient(op, self._devices)

    def _add(self, op: OpView) -> None:
        self._ops.append(op.moved(len(self._ops)))

    def _write_differing(self, op: OpView) -> None:
        """An op that computes something else on each device."""
        raise NotImplementedError

    def _write_alike(self, op: OpView) -> None:
        """An op that computes the same on all devices."""
        self._add(op)

    def _add_sum(self, name: str, roles: Mapping[str, Any]) -> None:
        """The sum of a gradient over the devices; ``roles``: the attributes of the op it comes from."""
        raise NotImplementedError
