"""One update for several batches: the effect of ``multi_batch_merge_pass`` on a program.

::

    x      = read(reader)               x      = read(reader);  w@GRAD.repeat.0 = mul_grad(x, ...)
    w@GRAD = mul_grad(x, ...)           x      = read(reader);  w@GRAD.repeat.1 = mul_grad(x, ...)
                                        w@GRAD = (w@GRAD.repeat.0 + w@GRAD.repeat.1) / 2
    w      = sgd(w, w@GRAD)             w      = sgd(w, w@GRAD)

Each repetition takes a batch of its own from the program's readers, where Paddle 1.8.5 dies by SIGSEGV; what is fed is
the same for all. Names are those of 1.8.5: running statistics of ``batch_norm`` are ``<name>.repeat.<i>``, and the
script sets their first values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fluidjax.base.enums import OpRole
from fluidjax.framework import messages, names
from fluidjax.proto import framework_pb2 as pb

if TYPE_CHECKING:
    from fluidjax.framework.operator import Operator
    from fluidjax.framework.program import Program

_STATISTICS = ("Mean", "Variance", "MeanOut", "VarianceOut")
_UPDATING = OpRole.Optimize | OpRole.Dist | OpRole.RPC


def merged(program: Program, repeats: int) -> Program:
    """A copy whose forward and backward ops stand there ``repeats`` times, before an update by their mean gradients."""
    block = program.global_block()
    repeated = [op for op in block.ops if _is_repeated(op)]
    schedules = [op for op in block.ops if not _is_repeated(op) and not _role(op) & _UPDATING]
    updates = [op for op in block.ops if _role(op) & _UPDATING]
    parameters = _parameters(repeated)
    message = pb.ProgramDesc()
    message.CopyFrom(program.proto)
    copy = _Copy(message.blocks[0])
    for count in range(repeats):
        for op in repeated:
            copy.add_repeated(op.proto, count, parameters)
    for gradient, parameter in parameters.items():
        copy.add_mean(gradient, parameter, repeats)
    for op in (*schedules, *updates):
        copy.add(op.proto)
    return program._derived(message, {i: i for i in range(program.num_blocks)})


def _role(op: Operator) -> int:
    return int(op._attr_map.get(names.OP_ROLE, 0))


def _is_repeated(op: Operator) -> bool:
    role = _role(op)
    return role == OpRole.Forward or bool(role & (OpRole.Backward | OpRole.Loss))


def _parameters(repeated: Iterable[Operator]) -> dict[str, str]:
    """The gradients of parameters that backward ops complete, and the parameter of each."""
    found = {}
    for op in repeated:
        pairs = list(op._attr_map.get(names.OP_ROLE_VAR) or ())
        found.update({g: p for p, g in zip(pairs[::2], pairs[1::2], strict=True) if g in op.output_arg_names})
    return found


def _again(name: str, count: int) -> str:
    return f"{name}.repeat.{count}"


class _Copy:
    """The outermost block of the copy, whose ops are written anew."""

    def __init__(self, block: pb.BlockDesc):
        self._block = block
        self._vars = {var.name: var for var in block.vars}
        del block.ops[:]

    def add(self, op: pb.OpDesc) -> pb.OpDesc:
        """Append a copy of an op."""
        added = self._block.ops.add()
        added.CopyFrom(op)
        return added

    def add_repeated(self, op: pb.OpDesc, count: int, gradients: Mapping[str, str]) -> None:
        """Append an op of a repetition: gradients and running statistics have names of their own there."""
        added = self.add(op)
        if op.type == "read":
            self._read(added, count)
            return
        own = {name for slot in (*op.inputs, *op.outputs) for name in slot.arguments if name in gradients}
        if op.type == "batch_norm":
            own |= {n for s in (*op.inputs, *op.outputs) if s.parameter in _STATISTICS for n in s.arguments}
        for slot in (*added.inputs, *added.outputs):
            slot.arguments[:] = [self._declared(n, count) if n in own else n for n in slot.arguments]
        if not own.isdisjoint(gradients):
            messages.set_attr(added, names.OP_ROLE_VAR, [])

    def _read(self, op: pb.OpDesc, count: int) -> None:
        """Let a ``read`` op fill variables of its own, which are copied: runs are given all batches at their start."""
        for slot in op.outputs:
            given = list(slot.arguments)
            slot.arguments[:] = [self._declared(name, count) for name in given]
            for name, own in zip(given, slot.arguments, strict=True):
                self._make("assign", {"X": [own]}, {"Out": [name]}, {names.OP_ROLE: int(OpRole.Forward)})

    def add_mean(self, gradient: str, parameter: str, repeats: int) -> None:
        """Append what makes a gradient the mean of the repetitions'."""
        backward = {names.OP_ROLE: int(OpRole.Backward)}
        parts = [_again(gradient, count) for count in range(repeats)]
        self._make("sum", {"X": parts}, {"Out": [gradient]}, backward)
        of = {**backward, names.OP_ROLE_VAR: [parameter, gradient], "scale": 1.0 / repeats}
        self._make("scale", {"X": [gradient]}, {"Out": [gradient]}, of)

    def _declared(self, name: str, count: int) -> str:
        """The name of a repetition's own variable, which is declared as the one it stands for."""
        own = _again(name, count)
        if own not in self._vars and name in self._vars:
            var = self._vars[own] = self._block.vars.add()
            var.CopyFrom(self._vars[name])
            var.name = own
        return own

    def _make(
        self, type: str, inputs: Mapping[str, list[str]], outputs: Mapping[str, list[str]], attrs: Mapping[str, Any]
    ) -> None:
        op = self._block.ops.add(type=type)
        for slots, given in ((op.inputs, inputs), (op.outputs, outputs)):
            for slot, arguments in given.items():
                messages.set_slot(slots, slot, arguments)
        for name, value in attrs.items():
            messages.set_attr(op, name, value)
