"""A program for several devices as the program of each: ops that differ run on its share, with sums over all devices.

It is run over a mesh (see ``lowering.mesh``), all devices at once. What the scope keeps is given to all of them alike::

    y      = mul(x, w)                  y      = mul(x, w)
    w@GRAD = mul_grad(x, y@GRAD)        w@GRAD = mul_grad(x, y@GRAD)
                                        w@GRAD = sum_over_devices(w@GRAD)
    w      = sgd(w, w@GRAD)             w      = sgd(w, w@GRAD)

Variables that devices have for themselves between runs go by the names that ``replicas`` gives them: before the first
op each device takes its own, after the last one all are put together. So a run of either kind may follow the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lowering.engine.dataflow import MARKERS, flow
from lowering.engine.devices import (
    Devices,
    Writer,
    on_device,
    own_of,
    sums_of,
)
from lowering.engine.runner import number_of
from lowering.program import EMPTY, GRAD, ROLE_BACKWARD, OpView, ProgramView


@dataclass(frozen=True, eq=False)
class SpreadProgram:
    """A program for each of several devices.

    Attributes:
        program: the program.
        own: the variables of the outermost block that each device has for itself.
        sums: those of them that are the same on all devices in the end.
        kept: the names on all devices of those that the scope keeps.
        count: how many devices there are.
    """

    program: ProgramView
    own: frozenset[str]
    sums: frozenset[str]
    kept: Mapping[str, list[str]]
    count: int

    def names(self, name: str) -> list[str]:
        """By which names a variable is fetched: one whose rows are the devices' or that all share, or one of each."""
        return self.kept.get(name, [name])

    def divided(self, name: str) -> bool:
        """Whether devices have their own rows of what goes by ``name`` at the end of a run."""
        return name in self.own and name not in self.sums and name not in self.kept

    def state(self) -> dict[str, list[str]]:
        """The names on the other devices of what the scope keeps of each device's own variables."""
        return {name: names[1:] for name, names in self.kept.items()}

    def draws(self, name: str) -> list[int]:
        """A number by which what is drawn into ``name`` is drawn apart from all else, on each device."""
        names = (on_device(name, i, self.own) if name in self.own else name for i in range(self.count))
        return [*map(number_of, names)]


def spread(program: ProgramView, devices: Devices, fed: Collection[str]) -> SpreadProgram:
    """The program of each device.

    Args:
        program: the program of one device.
        devices: how many there are, and what happens between them.
        fed: what each device is fed for itself.
    """
    sums = sums_of(program)
    own = own_of(program, devices, sums, fed)
    block = program.blocks[0]
    kept = {
        n: [on_device(n, i, own) for i in range(devices.count)]
        for n in block.vars
        if n in own and n not in sums and block.vars[n].persistable
    }
    writer = _Writer(program, devices, sums, own)
    return SpreadProgram(writer.written(kept), own, frozenset(sums), kept, devices.count)


class _Writer(Writer):
    """Writes the ops of a device."""

    def written(self, kept: Mapping[str, list[str]]) -> ProgramView:
        """The program of a device; see ``SpreadProgram`` for what is ``kept``."""
        outermost = self._program.blocks[0]
        reads, writes = flow(self._program, [op for op in outermost.ops if op.type not in MARKERS])
        for name in (n for n in kept if n in reads):
            self._op("concat", {"X": kept[name]}, _all(name), {"axis": 0})
            self._op("device_share", {"X": [_all(name)]}, name)
        for op in outermost.ops:
            self._write(op)
        for name in (n for n in kept if n in writes):
            self._op("device_shares", {"X": [name]}, _all(name))
            parts = {"axis": 0, "num": self._devices.count}
            self._add(OpView("split", {"X": [_all(name)]}, {"Out": kept[name]}, parts))
        variables = dict(outermost.vars)
        for name, names in kept.items():
            variables.update({n: replace(outermost.vars[name], name=n) for n in names})
        written = replace(outermost, ops=tuple(self._ops), vars=variables)
        return replace(self._program, blocks=(written, *self._program.blocks[1:]))

    def _op(self, type: str, inputs: dict[str, list[str]], out: str, attrs: Mapping[str, Any] | None = None) -> None:
        self._add(OpView(type, inputs, {"Out": [out]}, dict(attrs or {})))

    def _write_differing(self, op: OpView) -> None:
        if self._is_joint(op):
            self._write_joint(op)
        else:
            self._add(op)

    def _add_sum(self, name: str, roles: Mapping[str, Any]) -> None:
        self._op("sum_over_devices", {"X": [name]}, name, roles)

    def _write_joint(self, op: OpView) -> None:
        """Normalise the batches of all devices as one, or what belongs to its gradient."""
        forward = op.type == "batch_norm"
        batch = {slot: names[0] for slot, names in op.inputs.items() if slot in ("X", f"Y{GRAD}") and names}
        rows = [n for n in op.outputs.get("Y" if forward else f"X{GRAD}", ()) if n != EMPTY]
        shares = [] if forward else [n for n in op.output_names() if n in self._own and n not in rows]
        for name in batch.values():
            self._op("device_shares", {"X": [name]}, _all(name))
        inputs = {**op.inputs, **{slot: [_all(name)] for slot, name in batch.items()}}
        joined = {*rows, *shares}
        outputs = {slot: [_all(n) if n in joined else n for n in names] for slot, names in op.outputs.items()}
        self._add(replace(op, inputs=inputs, outputs=outputs))
        for name in rows:
            self._op("device_share", {"X": [_all(name)]}, name)
        for name in shares:  # their sum is what was computed
            attrs = {"scale": 1.0 / self._devices.count, "op_role": ROLE_BACKWARD}
            self._op("scale", {"X": [_all(name)]}, name, attrs)


def _all(name: str) -> str:
    """The name of what all devices have, as one."""
    return f"{name}@DEVICES"
