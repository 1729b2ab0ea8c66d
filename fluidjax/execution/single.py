"""One op on its own that reads and writes variables of a scope, as Fluid's native operators do."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fluidjax.base.containers import LoDTensorArray, SelectedRows
from fluidjax.base.enums import VarType
from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.places import Place
from fluidjax.base.scope import Scope, ScopeVariable
from fluidjax.base.values import LoDTensor
from fluidjax.executor import Executor
from fluidjax.framework import Program
from fluidjax.framework.names import EMPTY_VAR_NAME
from fluidjax.framework.protos import op_proto
from fluidjax.proto import framework_pb2 as pb


class NativeOperator:
    """An op bound to names of variables. ``fluid.op.Operator`` makes these; they belong to no program.

    Args:
        desc: the op's message.
    """

    def __init__(self, desc: pb.OpDesc):
        self._desc = desc
        self._proto = op_proto(desc.type)
        self._read, self._written = self.input_vars(), frozenset(self.output_vars())
        self._names = [n for n in dict.fromkeys([*self._read, *self._written]) if n != EMPTY_VAR_NAME]
        self._program: Program | None = None
        self._executor: Executor | None = None
        self._forms: dict[str, _Form] = {}

    @staticmethod
    def create(desc: bytes) -> NativeOperator:
        """An op from its serialized OpDesc. Raises lowering.UnknownOpError for a type that is not registered."""
        return NativeOperator(pb.OpDesc.FromString(desc))

    def type(self) -> str:
        """The op's type."""
        return self._desc.type

    def inputs(self) -> dict[str, list[str]]:
        """Input slot -> variables; all slots that the op has."""
        return _bound(self._proto.inputs, self._desc.inputs)

    def outputs(self) -> dict[str, list[str]]:
        """Output slot -> variables; all slots that the op has."""
        return _bound(self._proto.outputs, self._desc.outputs)

    def input_vars(self) -> list[str]:
        """The variables of all input slots."""
        return [name for names in self.inputs().values() for name in names]

    def output_vars(self) -> list[str]:
        """The variables of all output slots."""
        return [name for names in self.outputs().values() for name in names]

    def no_intermediate_outputs(self) -> list[str]:
        """The variables of the outputs that are not only kept for the gradient."""
        kept = {slot.name for slot in self._proto.outputs if slot.intermediate}
        return [name for slot, names in self.outputs().items() if slot not in kept for name in names]

    def support_gpu(self) -> bool:
        """Whether the op was made for an accelerator: it goes where ``run`` says."""
        return False

    def run(self, scope: Scope, place: Place) -> None:
        """Compute the outputs from the inputs.

        Args:
            scope: has the inputs, initialized, and the outputs as variables.
            place: where to compute.

        Raises EnforceNotMet when the scope lacks a variable, and what the op itself raises.
        """
        variables = {name: self._variable(scope, name) for name in self._names}
        given = {n: variables[n]._holder for n in self._read if n not in self._written and _just_set(variables.get(n))}
        forms = {n: _form(var._holder, given=n in given) for n, var in variables.items()}
        if self._program is None or forms != self._forms:
            self._program, self._forms = self._as_program(forms), forms
        if self._executor is None or self._executor.place != place:
            self._executor = Executor(place)
        self._executor.run(self._program, feed=given, fetch_list=[], scope=scope)

    def _variable(self, scope: Scope, name: str) -> ScopeVariable:
        var = scope.find_var(name)
        if var is None:
            raise EnforceNotMet(
                f"Operator {self.type()}: the scope has no variable {name!r}. Expected all inputs, with values, and all"
                f" outputs. Make it with scope.var({name!r}) before run"
            )
        return var

    def _as_program(self, forms: dict[str, _Form]) -> Program:
        """A program of this op alone, which is fed what the user has just set; all else stays in the scope."""
        program = Program()
        block = program.global_block()
        for name, form in forms.items():
            block.create_var(name=name, persistable=not form.given, **form.declared())
        block.desc.append_op().proto.CopyFrom(self._desc)
        block._sync_with_cpp()
        return program

    def __str__(self) -> str:
        return f"Op({self.type()}), inputs:{_text(self.inputs())}, outputs:{_text(self.outputs())}."


def _bound(slots: Any, bindings: Any) -> dict[str, list[str]]:
    names = {slot.parameter: list(slot.arguments) for slot in bindings}
    return {slot.name: names.get(slot.name, []) for slot in slots}


def _text(slots: dict[str, list[str]]) -> str:
    return "{" + ", ".join(f"{slot}[{', '.join(names)}]" for slot, names in sorted(slots.items())) + "}"


class _Form(NamedTuple):
    """What the program of an op depends on: the kind of a variable, and the form of the array that it is fed."""

    kind: VarType
    given: bool = False
    dtype: np.dtype | None = None
    shape: tuple[int, ...] = ()
    levels: int = 0

    def declared(self) -> dict[str, Any]:
        """How the variable is declared."""
        array = {"dtype": self.dtype, "shape": self.shape, "lod_level": self.levels} if self.given else {}
        return {"type": self.kind, **array}


def _just_set(var: ScopeVariable | None) -> bool:
    """Whether a variable holds an array of the host. Such a one is fed: moving it to the device takes longer than a run
    of a small op, and tests that take a gradient by differences set one before each run.
    """
    return var is not None and type(var._holder) is LoDTensor and type(var._holder._stored) is np.ndarray


def _form(holder: Any, *, given: bool) -> _Form:
    if given:
        array = holder._stored
        return _Form(VarType.LOD_TENSOR, True, array.dtype, array.shape, len(holder._lod))
    if isinstance(holder, SelectedRows):
        return _Form(VarType.SELECTED_ROWS)
    return _Form(VarType.LOD_TENSOR_ARRAY if isinstance(holder, LoDTensorArray) else VarType.LOD_TENSOR)
