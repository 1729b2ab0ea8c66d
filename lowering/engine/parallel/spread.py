"""A program for several devices as the program of each: ops that differ run on its share, with sums over all devices.

It is run over a mesh (see ``lowering.mesh``), all devices at once. What the scope keeps is given to all of them alike::

    y      = mul(x, w)                  y      = mul(x, w)
    w@GRAD = mul_grad(x, y@GRAD)        w@GRAD = mul_grad(x, y@GRAD)
                                        w@GRAD = sum_over_devices(w@GRAD)
    w      = sgd(w, w@GRAD)             w      = sgd(w, w@GRAD)

Per-device variables that persist between runs have the names that ``replicas`` gives them: before the first
op each device takes its own, after the last one all are joined. So runs of both kinds may alternate.
Parameters divided among the devices (see ``division.py``) keep their names, which denote each device's part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lowering.engine.dataflow import MARKERS, flow
from lowering.engine.parallel.devices import (
    Devices,
    Writer,
    differs,
    on_device,
    own_and_sums,
)
from lowering.engine.parallel.division import Division, in_place, lookup
from lowering.engine.run import number_of
from lowering.program import BOOKKEEPING, EMPTY, GRAD, ROLE_BACKWARD, OpView, ProgramView

GRAD_OP = "_grad"


@dataclass(frozen=True, eq=False)
class SpreadProgram:
    """A program for each of several devices.

    Attributes:
        program: the program.
        own: the variables of the outermost block of which each device has its own.
        sums: those of them that are equal on all devices in the end.
        kept: the names, on all devices, of those that the scope keeps.
        count: the number of devices.
        parts: divided variables -> the axis along which they are divided.
    """

    program: ProgramView
    own: frozenset[str]
    sums: frozenset[str]
    kept: Mapping[str, list[str]]
    count: int
    parts: Mapping[str, int]

    def names(self, name: str) -> list[str]:
        """The names by which a variable is fetched: one if all share it or its rows are theirs, or one per device."""
        return self.kept.get(name, [name])

    def divided(self, name: str) -> bool:
        """Whether devices have their own rows of ``name`` at the end of a run."""
        return name in self.own and name not in self.sums and name not in self.kept

    def state(self) -> dict[str, list[str]]:
        """The names, on the other devices, of each device's own variables that the scope keeps."""
        return {name: names[1:] for name, names in self.kept.items()}

    def draws(self, name: str) -> list[int]:
        """A number that separates draws into ``name`` from all others, on each device."""
        names = (on_device(name, i, self.own) if name in self.own else name for i in range(self.count))
        return [*map(number_of, names)]


def spread(
    program: ProgramView, devices: Devices, fed: Collection[str], divided: Collection[str] = ()
) -> SpreadProgram:
    """The program of each device.

    Args:
        program: the program of one device.
        devices: the number of devices, and what happens between them.
        fed: what each device is fed separately.
        divided: the parameters to divide among the devices, as far as they divide equally.
    """
    own, sums = own_and_sums(program, devices, fed)
    block = program.blocks[0]
    kept = {
        n: [on_device(n, i, own) for i in range(devices.count)]
        for n in block.vars
        if n in own and n not in sums and block.vars[n].persistable
    }
    division = Division.of(program, divided, devices.count, lambda op: differs(program, op, own, sums))
    writer = _Writer(program, devices, sums, own, division)
    return SpreadProgram(writer.written(kept, fed), own, frozenset(sums), kept, devices.count, writer.parts)


class _Writer(Writer):
    """Writes the ops of a device.

    Attributes:
        parts: what the device has a part of, after the ops so far -> the axis.
    """

    def __init__(
        self,
        program: ProgramView,
        devices: Devices,
        sums: Mapping[str, int],
        own: frozenset[str],
        division: Division,
    ):
        super().__init__(program, devices, sums, own)
        self._division = division
        self.parts = dict(division.axes)

    def written(self, kept: Mapping[str, list[str]], fed: Collection[str]) -> ProgramView:
        """The program of a device; see ``SpreadProgram`` for what is ``kept``. What is ``fed`` is not taken from it."""
        outermost = self._program.blocks[0]
        reads, writes = flow(self._program, [op for op in outermost.ops if op.type not in MARKERS])
        for name in (n for n in kept if n in reads and n not in fed):
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
        # As many rows are declared as a share has: the array that is fed has those of all.
        shapes = {n: variables[n].shape for n in fed if n in variables}
        variables.update({n: replace(variables[n], shape=(-1, *s[1:])) for n, s in shapes.items() if s})
        written = replace(outermost, ops=tuple(self._ops), vars=variables)
        return replace(self._program, blocks=(written, *self._program.blocks[1:]))

    def _op(self, type: str, inputs: dict[str, list[str]], out: str, attrs: Mapping[str, Any] | None = None) -> None:
        self._add(OpView(type, inputs, {"Out": [out]}, dict(attrs or {})))

    def _write_differing(self, op: OpView) -> None:
        if self._is_joint(op):
            self._write_joint(op)
        else:
            name = self._division.worked_on(op)
            if name is None:
                self._write_alike(op)
            elif lookup(op, name):
                self._write_lookup(op, name)
            else:
                self._write_product(op, name)

    def _write_alike(self, op: OpView) -> None:
        if all(n not in self.parts for n in (*op.input_names(), *op.output_names())):
            self._add(op)
            return
        names = in_place(op, self.parts, self._program.blocks[0].vars)
        if names is None:
            self._write_whole(op)
        else:
            self._write_in_place(op, names)

    def _add_sum(self, name: str, roles: Mapping[str, Any]) -> None:
        if name not in self.parts:
            self._op("sum_over_devices", {"X": [name]}, name, roles)

    # --- parameters of which the device has a part ----------------------------------------------------------------

    def _write_lookup(self, op: OpView, table: str) -> None:
        """Look up rows of the part by the ids of all devices, or compute the gradient of the part."""
        ids, attrs = op.inputs["Ids"][0], {k: op.attrs[k] for k in ("padding_idx", "is_sparse") if k in op.attrs}
        attrs["column"] = op.type.startswith("lookup_table") and "_v2" not in op.type
        inputs = {"W": [table], "Ids": [self._gathered(ids)]}
        if not op.type.endswith(GRAD_OP):
            (out,) = op.outputs["Out"]
            self._op("lookup_in_share", inputs, _all(out), attrs)
            self._op("sum_to_shares", {"X": [_all(out)]}, out)
            return
        inputs[f"Out{GRAD}"] = [self._gathered(op.inputs[f"Out{GRAD}"][0])]
        self._add(OpView("lookup_in_share_grad", inputs, {f"W{GRAD}": op.outputs[f"W{GRAD}"]}, _with_roles(op, attrs)))
        self.parts[op.outputs[f"W{GRAD}"][0]] = self.parts[table]

    def _write_product(self, op: OpView, matrix: str) -> None:
        """Columns of the product of all devices' rows, or its gradients."""
        inputs = {"X": [self._gathered(op.inputs["X"][0])], "Y": [matrix]}
        if not op.type.endswith(GRAD_OP):
            (out,) = op.outputs["Out"]
            self._add(replace(op, inputs=inputs, outputs={"Out": [_all(out)]}))
            self._op("columns_to_rows", {"X": [_all(out)]}, out)
            return
        of_out = op.inputs[f"Out{GRAD}"][0]
        self._op("rows_to_columns", {"X": [of_out]}, _all(of_out))
        inputs[f"Out{GRAD}"] = [_all(of_out)]
        of_rows = [n for n in op.outputs.get(f"X{GRAD}", ()) if n != EMPTY]
        outputs = {**op.outputs, f"X{GRAD}": [*map(_all, of_rows)]} if of_rows else op.outputs
        self._add(replace(op, inputs=inputs, outputs=outputs))
        for name in of_rows:
            self._op("sum_to_shares", {"X": [_all(name)]}, name)
        for name in op.outputs.get(f"Y{GRAD}", ()):
            self.parts[name] = self.parts[matrix]

    def _write_in_place(self, op: OpView, names: Collection[str]) -> None:
        """An op that works position by position, on parts of ``names``."""
        axis = next(self.parts[n] for n in names if n in self.parts)
        cut = [n for n in names if n not in self.parts]
        for name in cut:
            self._op("device_share", {"X": [name]}, _own(name), {"axis": axis})
        renamed = {n: _own(n) for n in cut}
        self._add(replace(op, inputs=_renamed(op.inputs, renamed)))
        single = set(op.input_names()) - set(names)
        self.parts.update((n, axis) for n in op.output_names() if n not in single)

    def _write_whole(self, op: OpView) -> None:
        """An op that reads and writes whole variables, assembled from parts and divided again."""
        gathered = {n: _all(n) for n in (*op.input_names(), *op.output_names()) if n in self.parts}
        for name in dict.fromkeys(n for n in op.input_names() if n in self.parts):
            self._op("device_shares", {"X": [name]}, _all(name), {"axis": self.parts[name]})
        kept = {n: whole for n, whole in gathered.items() if n in self._division.axes}
        outputs = _renamed(op.outputs, kept)
        self._add(replace(op, inputs=_renamed(op.inputs, gathered), outputs=outputs))
        for name in dict.fromkeys(op.output_names()):
            if name in kept:
                self._op("device_share", {"X": [kept[name]]}, name, {"axis": self.parts[name]})
            else:
                self.parts.pop(name, None)

    def _gathered(self, name: str) -> str:
        """The rows of all devices, as one."""
        self._op("device_shares", {"X": [name]}, _all(name))
        return _all(name)

    def _write_joint(self, op: OpView) -> None:
        """Normalise the batches of all devices as one, or compute part of the gradient of that."""
        forward = "Y" in op.outputs
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
        for name in shares:  # the value computed is their sum
            attrs = {"scale": 1.0 / self._devices.count, "op_role": ROLE_BACKWARD}
            self._op("scale", {"X": [_all(name)]}, name, attrs)


def _all(name: str) -> str:
    """The name of the whole assembled from all devices."""
    return f"{name}@DEVICES"


def _own(name: str) -> str:
    """The name of a device's part of the whole."""
    return f"{name}@PART"


def _renamed(slots: Mapping[str, Sequence[str]], names: Mapping[str, str]) -> dict[str, list[str]]:
    return {slot: [names.get(n, n) for n in found] for slot, found in slots.items()}


def _with_roles(op: OpView, attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {**attrs, **{k: op.attrs[k] for k in BOOKKEEPING if k in op.attrs}}
