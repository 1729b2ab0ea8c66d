"""A program for several devices as stages of each, between which gradients are summed.

::

    device 0                              device 1
    y      = mul(x, w)                    y@DEVICE_1      = mul(x@DEVICE_1, w)
    w@GRAD = mul_grad(x, y@GRAD)          w@DEVICE_1@GRAD = mul_grad(x@DEVICE_1, y@DEVICE_1@GRAD)
    --------------------- w@GRAD = w@GRAD + w@DEVICE_1@GRAD ------------------
    w      = sgd(w, w@GRAD)               w               = sgd(w, w@GRAD)

Names are those of ``replicas``. As devices meet between stages only, their shares may be of any size and kind. An op is
in the first stage that has all it reads: the first one, unless that depends on a sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lowering.engine.dataflow import MARKERS, definitions, uses
from lowering.engine.parallel.devices import (
    Devices,
    OwnVariables,
    completed,
    is_joint,
    is_joint_gradient,
    on_device,
    own_and_sums,
)
from lowering.engine.parallel.replicas import ReplicaWriter
from lowering.engine.parallel.spread import SpreadProgram
from lowering.program import EMPTY, OpView, ProgramView
from lowering.registry import get_op


@dataclass(frozen=True)
class Sum:
    """A gradient that is summed over the devices: the names of its parts, and those of the sum on each device."""

    parts: tuple[str, ...]
    totals: tuple[str, ...]

    def op(self, device: int) -> OpView:
        """The op that sums the parts for a device which has all of them."""
        return OpView("sum", {"X": list(self.parts)}, {"Out": [self.totals[device]]}, {})


@dataclass(frozen=True)
class Stage:
    """The sums that come before a stage, and the program of each device."""

    sums: tuple[Sum, ...]
    programs: tuple[ProgramView, ...]

    def program(self, device: int, sums: Collection[Sum]) -> ProgramView:
        """The program of a device that is given the parts of these sums, and begins with them."""
        return _begun_with([s.op(device) for s in sums], self.programs[device])

    @property
    def alike(self) -> bool:
        """Whether there are sums, and all devices compute the same from them."""
        ops = [program.blocks[0].ops for program in self.programs]
        return bool(self.sums) and all(of == ops[0] for of in ops) and all(len(set(s.totals)) == 1 for s in self.sums)

    def joint(self) -> SpreadProgram:
        """The program of all devices at once, which begins with the sums, where they compute the same."""
        sums = [OpView("sum_over_devices", {"X": [s.parts[0]]}, {"Out": [s.totals[0]]}, {}) for s in self.sums]
        program = _begun_with(sums, self.programs[0])
        rows = {n: 0 for op in program.blocks[0].ops for n in (*op.input_names(), *op.output_names())}
        return SpreadProgram(program, frozenset(), frozenset(), {}, len(self.programs), rows)


def _begun_with(first: Sequence[OpView], program: ProgramView) -> ProgramView:
    """The program with these ops before its own."""
    outermost, *blocks = program.blocks
    ops = tuple(op.moved(i) for i, op in enumerate((*first, *outermost.ops)))
    return replace(program, blocks=(replace(outermost, ops=ops), *blocks))


@dataclass(frozen=True, eq=False)
class StagedProgram(OwnVariables):
    """A program in stages. Nothing persists in them: their state is fed and fetched.

    Attributes:
        stages: in order.
        persistable: what the scope keeps, by the names on the devices.
        random: whether any op draws numbers.
    """

    stages: tuple[Stage, ...]
    persistable: frozenset[str]
    random: bool

    def state(self) -> dict[str, list[str]]:
        """The names, on the other devices, of each device's own variables that the scope keeps."""
        return self.copies(self.persistable)


def stageable(program: ProgramView, devices: Devices) -> bool:
    """Whether devices meet only where gradients are summed, no op works on the host, and variables are declared."""
    ops = [op for block in program.blocks for op in block.ops if op.type not in MARKERS]
    joint = any(is_joint(op, devices) or is_joint_gradient(op, devices) for op in ops)
    names = {n for op in program.blocks[0].ops for n in (*op.input_names(), *op.output_names())} - {EMPTY}
    declared = names <= program.blocks[0].vars.keys()
    return declared and not joint and all(get_op(op.type).kind != "host" for op in ops)


def stage(program: ProgramView, devices: Devices, fed: Collection[str]) -> StagedProgram:
    """The stages of a ``stageable`` program; see ``replicas.replicate`` for the arguments."""
    own, sums = own_and_sums(program, devices, fed)
    levels = _levels(program)
    last = max([*levels.values(), *(levels[at] + 1 for at in completed(program).values())], default=0)
    writers = [_Writer(program, devices, sums, own, i, levels, last + 1) for i in range(devices.count)]
    programs = [writer.programs() for writer in writers]
    stages = []
    for level in range(last + 1):
        before = [name for name, at in completed(program).items() if levels[at] + 1 == level]
        found = tuple(_sum(name, devices.count, own, sums) for name in before)
        stages.append(Stage(found, tuple(of_device[level] for of_device in programs)))
    held = _persistable(program, devices, own)
    random = any("key" in get_op(op.type).special for b in program.blocks for op in b.ops if op.type not in MARKERS)
    return StagedProgram(own, frozenset(sums), devices.count, tuple(stages), held, random)


def _levels(program: ProgramView) -> dict[int, int]:
    """The number of the stage of each op of the outermost block."""
    found: dict[int, int] = {}
    read: dict[str, int] = {}
    written: dict[str, int] = {}
    sums = completed(program)
    for op in program.blocks[0].ops:
        if op.type in MARKERS:
            continue
        used, defined = uses(program, op), definitions(program, op)
        level = max([written.get(n, 0) for n in (*used, *defined)] + [read.get(n, 0) for n in defined], default=0)
        found[op.index] = level
        read.update((n, max(level, read.get(n, 0))) for n in used)
        written.update((n, level + (sums.get(n) == op.index)) for n in defined)
    return found


def _sum(name: str, count: int, own: Collection[str], sums: Collection[str]) -> Sum:
    parts = tuple(on_device(name, i, own) for i in range(count))
    return Sum(parts, (name,) * count if name in sums else parts)


def _persistable(program: ProgramView, devices: Devices, own: Collection[str]) -> frozenset[str]:
    held = [v.name for v in program.blocks[0].vars.values() if v.persistable]
    return frozenset(on_device(n, i, own) if n in own else n for n in held for i in range(devices.count))


class _Writer(ReplicaWriter):
    """Writes the ops of one device, those of each stage apart."""

    def __init__(
        self,
        program: ProgramView,
        devices: Devices,
        sums: Mapping[str, int],
        own: frozenset[str],
        device: int,
        levels: Mapping[int, int],
        count: int,
    ):
        super().__init__(program, devices, sums, own)
        self._device = device
        self._levels = levels
        self._level = 0
        self._stages: list[list[OpView]] = [[] for _ in range(count)]

    def programs(self) -> list[ProgramView]:
        """The program of each stage."""
        outermost = self._program.blocks[0]
        for op in outermost.ops:
            self._level = self._levels.get(op.index, 0)
            self._write(op)
        variables = {n: replace(v, persistable=False) for n, v in self._variables(outermost).items()}
        blocks = self._blocks[1:]
        return [
            replace(self._program, blocks=(replace(outermost, ops=tuple(ops), vars=variables), *blocks))
            for ops in self._stages
        ]

    def _add(self, op: OpView) -> None:
        ops = self._stages[self._level]
        ops.append(op.moved(len(ops)))

    def _write_differing(self, op: OpView) -> None:
        self._add(self.renamed(op, self._device))

    def _add_sum(self, name: str, roles: Mapping[str, Any]) -> None:
        """Sums are between the stages."""
