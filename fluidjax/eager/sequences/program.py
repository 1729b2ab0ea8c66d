"""Recorded ops as those of a program, so that values with spare room pass through them (see ``lowering.wide``).

Records number their values; rules for spare room read names: the gradient of ``x`` is called ``x@GRAD...``, and what
``x`` is like decides what its gradient is like. Ops on values without spare room run as they do anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidjax.eager.kernels import Kernel, wrapped_key
from fluidjax.eager.laws import law_of
from fluidjax.eager.sequences.order import Order, Record
from fluidjax.eager.slots import by_slot
from fluidjax.execution.executables.executable import default_device
from lowering.engine.expected import Expected, FedRows
from lowering.engine.runner import Runner
from lowering.errors import NeedsSizes
from lowering.program import EMPTY, GRAD, OpView, VarView
from lowering.values import RowCounts, Wide
from lowering.wide.calls import check_gradients_of_wide
from lowering.wide.spare import SpareRoom


class _Variables:
    """What rules may ask of a program."""

    gradients: frozenset[str] = frozenset()
    version, newer, has_scalars = 0, False, False  # eager ops are Fluid's

    def __init__(self) -> None:
        self.declared: dict[str, VarView] = {}

    def find_var(self, block_idx: int, name: str) -> VarView | None:
        """The variable of that name; there are no blocks."""
        return self.declared.get(name)


class _OpRunner(Runner):
    """A runner to whom keys are told."""

    key_of_op: Any = None

    def draw_key(self, op: OpView) -> Any:
        """See Runner."""
        return self.key_of_op


class Recorded:
    """Recorded ops in one trace, some of whose leaves have spare room.

    Args:
        values: of the leaves.
    """

    def __init__(self, records: Sequence[Record], values: Sequence[Any]) -> None:
        self._records, self._variables = records, _Variables()
        platform, spare = default_device().platform, SpareRoom(wide=True)
        self._runner = _OpRunner(self._variables, spare=spare, platform=platform)  # type: ignore[arg-type]
        self._runner.fed = FedRows(values)
        self._env: dict[str, Any] = {_name(~k): value for k, value in enumerate(values)}
        self._forward: dict[int, int] = {}  # a gradient -> what it is the gradient of
        self._made: dict[int, tuple[Kernel, Sequence[int], int]] = {}  # output -> its op, inputs, and first output

    @property
    def expected(self) -> Expected:
        """What the ops expect of the sizes (see ``lowering.engine.expected``)."""
        return self._runner.fed.expected

    def run(self, alive: Sequence[int]) -> list[Any]:
        """The outputs `alive`, with spare room where they have some.

        Raises:
            Need: an op cannot take values with spare room, or some of its numbers are missing.
        """
        for at, (record, begin, _) in enumerate(Order(self._records, alive).steps):
            kernel, codes = record[0], record[1:]
            key = None
            if kernel.takes_key:
                key, codes = self._env[_name(codes[0])], codes[1:]
            self._note(kernel, codes, begin)
            self._run_op(at, kernel, codes, begin, key)
        if self._runner.overflows:
            raise NeedsSizes("a check of sizes that only the run knows")
        return [self._env[_name(code)] for code in alive]

    def _run_op(self, at: int, kernel: Kernel, codes: Sequence[int], begin: int, key: Any) -> None:
        values = [self._env[_name(code)] for code in codes]
        roomy = any(isinstance(value, (Wide, RowCounts)) for value in values)
        results = kernel.in_room(values) if roomy else kernel.run(values if key is None else [key, *values])
        if type(kernel) is Kernel:  # others are given by ops' rules in ways of their own
            view = self._view(at, kernel, codes, begin)
            names = [name for slot in view.outputs.values() for name in slot]
            names += [view.inputs[slot][0] for slot in kernel.definition.updates]
            if results is None:
                self._check_known(kernel, names, codes, begin)
                results = self._by_rule(kernel, view, names, values, key)
            else:
                check_gradients_of_wide(view, dict(zip(names, results, strict=True)), self._env)
        if results is None:
            raise NeedsSizes(f"op {kernel.type}, which is bound to numbers")
        for code, value in enumerate(results, begin):
            self._env[_name(code)] = value
            if code in self._forward:
                self._env[self._gradient_name(code)] = value

    def _by_rule(self, kernel: Kernel, view: OpView, names: Sequence[str], values: Any, key: Any) -> tuple[Any, ...]:
        """The results on values with room; what the op makes of sizes is noted where it expects nothing of them."""
        if not kernel.plain:
            raise NeedsSizes(f"op {kernel.type}, which does not run inside jit")
        words = kernel.own_key if key is None else key
        self._runner.key_of_op = None if words is None else wrapped_key(words)
        before, self._runner.fed.expected = self.expected, {}
        found = self._runner.run_op(view, self._env)
        results = tuple([found.get(name) for name in names])
        if not self.expected:
            kernel.learn(law_of(values, results))
        self._runner.fed.expected = {**before, **self.expected}
        return results

    def _check_known(self, kernel: Kernel, names: Sequence[str], codes: Sequence[int], begin: int) -> None:
        """Raise NeedsSizes if nothing says what a gradient is the gradient of: it would be taken to have no room."""
        if kernel.definition.forward is None:
            return
        told = [self._env[_name(code)] for code in by_slot(kernel.ins, codes).get("XShape", ())]
        known = all(code in self._forward for code, name in enumerate(names, begin) if name != EMPTY)
        if not known and not any(isinstance(value, Wide) for value in told):
            raise NeedsSizes(f"op {kernel.type} gives gradients of what is not known")

    def _note(self, kernel: Kernel, codes: Sequence[int], begin: int) -> None:
        """Find out what the op's results are gradients of."""
        outputs = list(range(begin, begin + kernel.width))
        for code in outputs:
            self._made[code] = kernel, codes, begin
        if not kernel.backward:
            return
        if kernel.definition.forward is None:  # it adds or moves gradients, or is one of an op with operands
            moved = [self._forward[code] for code in codes if code in self._forward]
            sources = codes[:1] if "Gradient" in kernel.ins else moved
            if sources and kernel.width == 1:
                self._forward[begin] = sources[0]
            return
        forward = self._forward_slots(kernel, by_slot(kernel.ins, codes))
        for slot, made in by_slot(kernel.outs, outputs).items():
            for code, source in zip(made, forward.get(slot.removesuffix(GRAD), ()), strict=False):
                self._forward[code] = source

    def _forward_slots(self, kernel: Kernel, given: Mapping[str, Sequence[int]]) -> Mapping[str, Sequence[int]]:
        """The inputs of the op that a gradient op differentiates; the gradient op need not have all of them."""
        definition = kernel.definition.forward
        assert definition is not None
        for slot in definition.outputs:
            of_gradient = [self._forward.get(code) for code in given.get(slot.name + GRAD, ())]
            for code in [*given.get(slot.name, ()), *of_gradient]:
                made = self._made.get(code) if code is not None else None
                if made is not None and made[0].type == definition.type:
                    return {**by_slot(made[0].ins, made[1]), **given}
        return given

    def _view(self, at: int, kernel: Kernel, codes: Sequence[int], begin: int) -> OpView:
        """The op, with names of its own for all that it reads and makes; what it updates in place keeps its name."""
        gradients = kernel.definition.gradient_slots if kernel.definition.forward is not None else frozenset()
        inputs = {
            slot: [self._gradient_name(code) if slot in gradients else _name(code) for code in given]
            for slot, given in by_slot(kernel.ins, codes).items()
        }
        outputs: dict[str, list[str]] = {}
        code = begin
        for slot, stand_ins in kernel.view.outputs.items():
            outputs[slot] = []
            for stand_in in stand_ins:
                name = self._output_name(stand_in, codes, code)
                outputs[slot].append(name)
                self._declare(kernel, stand_in, name)
                code += 1
        return OpView(kernel.type, inputs, outputs, kernel.view.attrs, index=at)

    def _output_name(self, stand_in: str, codes: Sequence[int], code: int) -> str:
        if stand_in == EMPTY:
            return EMPTY
        return _name(codes[int(stand_in[1:])]) if stand_in[0] == "i" else self._gradient_name(code)

    def _declare(self, kernel: Kernel, stand_in: str, name: str) -> None:
        declared = kernel.variables.get(stand_in)
        if declared is not None and name != EMPTY:
            self._variables.declared[name] = VarView(name, declared.type, declared.dtype)

    def _gradient_name(self, code: int) -> str:
        """The name of a gradient, by which rules find what it is the gradient of."""
        return f"{_name(self._forward[code])}{GRAD}@{code}" if code in self._forward else _name(code)


def _name(code: int) -> str:
    return f"v{code}" if code >= 0 else f"leaf{~code}"
