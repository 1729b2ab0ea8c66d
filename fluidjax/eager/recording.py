"""The ops run by an eager net, as a static program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fluidjax.base.mode import tracer_guard
from fluidjax.eager.kernels import Kernel
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.framework import Parameter, Program, Variable
from fluidjax.framework.names import OP_CALLSTACK
from fluidjax.framework.parameter import EagerParameter


class Recording:
    """Ops in the order in which they ran, with the variables that they read and wrote."""

    def __init__(self) -> None:
        self.ops: list[tuple[Kernel, list[VarBase], list[VarBase | None]]] = []
        self.enabled = True  # whether ops are recorded

    @contextlib.contextmanager
    def of(self, tracer: Any) -> Iterator[None]:
        """Record what runs under a tracer inside."""
        bind = tracer._bind

        def note(kernel: Kernel, ins: Sequence[Any], outs: Sequence[Any], results: Any, forward: Any = None) -> None:
            if self.enabled:
                self.ops.append((kernel, list(ins), list(outs)))
            bind(kernel, ins, outs, results, forward)

        tracer._bind, tracer.recording = note, self
        try:
            yield
        finally:
            del tracer._bind
            tracer.recording = None

    def program(self, inputs: Mapping[str, VarBase], outputs: Mapping[str, VarBase], prefix: str) -> Recorded:
        """The program of the ops.

        Args:
            inputs, outputs: the variables that are fed and fetched, by their names in the program.
            prefix: prefix of the names of temporary variables.
        """
        return _Writer(self, inputs, outputs, prefix).write()


class Recorded:
    """A recorded program.

    Attributes:
        program: the program.
        state: name -> eager variable, for everything read other than inputs.
    """

    def __init__(self, program: Program, state: dict[str, VarBase]) -> None:
        self.program, self.state = program, state


class _Writer:
    def __init__(
        self, recording: Recording, inputs: Mapping[str, VarBase], outputs: Mapping[str, VarBase], prefix: str
    ) -> None:
        self.recording, self.inputs, self.outputs, self.prefix = recording, inputs, outputs, prefix
        self.program = Program()
        self.block = self.program.global_block()
        self.names: dict[int, str] = {}
        self.temporaries = 0
        self.state: dict[str, VarBase] = {}

    def write(self) -> Recorded:
        """The program."""
        with tracer_guard(None):
            for name, var in self.inputs.items():
                self._declare(name, var).is_data = True
            written = {id(v) for _, _, outs in self.recording.ops for v in outs if v is not None}
            # A result has the name by which it is fetched; an input, a parameter or a repeated result is copied.
            for name, var in self.outputs.items():
                if id(var) in written and id(var) not in self.names and not var.persistable:
                    self._declare(name, var)
            for kernel, ins, outs in self.recording.ops:
                self._op(kernel, ins, outs)
            for name, var in self.outputs.items():
                if self._name(var) != name:
                    copy = self._copy(name, var)
                    self.block.append_op("assign", {"X": [self._name(var)]}, {"Out": [copy]}, {})
        return Recorded(self.program, self.state)

    def _op(self, kernel: Kernel, ins: Sequence[VarBase], outs: Sequence[VarBase | None]) -> None:
        reads, writes = iter(ins), iter(outs)
        inputs = {slot: [self._name(next(reads)) for _ in names] for slot, names in kernel.view.inputs.items()}
        outputs: dict[str, list[str]] = {}
        for slot, names in kernel.view.outputs.items():
            variables = [next(writes, None) for _ in names]
            outputs[slot] = [self._name(v, made=True) for v in variables if v is not None]
        op = self.block.append_op(kernel.type, inputs, outputs, dict(kernel.attrs))
        op._set_attr(OP_CALLSTACK, [])  # that of `trace`, the same for all, says nothing of this op

    def _name(self, var: VarBase, made: bool = False) -> str:
        found = self.names.get(id(var))
        if found is not None:
            return found
        if made and not var.persistable:
            self.temporaries += 1
            return self._declare(f"{self.prefix}{self.temporaries - 1}", var).name
        name = var.name
        while name in self.state:  # an eager variable may have the name of another
            name += "@CAPTURED"
        self.state[name] = var
        return self._declare(name, var).name

    def _declare(self, name: str, var: VarBase) -> Variable:
        self.names[id(var)] = name
        return self._copy(name, var)

    def _copy(self, name: str, var: VarBase) -> Variable:
        held = name in self.state
        if held and issubclass(type(var), EagerParameter) and var.shape:
            return Parameter(self.block, shape=var.shape, dtype=var.dtype, name=name)
        return Variable(self.block, name=name, shape=var.shape, dtype=var.dtype, persistable=held)
