"""Host ops outside of a trace: what is the same in all runs of one op is worked out once.

A ``Runner`` asks in each run which values have room, follow sizes, are traced or have a strange type, and what the op's
slots and attributes are. None of this changes between runs on exact values, which cost more than many of these ops do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from lowering.engine import kinds
from lowering.engine.call import scatter
from lowering.engine.context import Context, Env, special
from lowering.engine.dataflow import sub_blocks
from lowering.engine.runner import Runner
from lowering.program import OpView, ProgramView
from lowering.registry import OpDef, Slot, get_op
from lowering.sizes.counts import follows_rows
from lowering.values import Form, exact


class HostSteps:
    """Consecutive ops that run on the host, as in ``Runner.run_ops`` and with the same results and errors.

    Args:
        program: the program's view.
        ops: in order.
        reads: the names that they read from outside.
        platform: 'cpu', 'gpu' or 'tpu'.
    """

    def __init__(self, program: ProgramView, ops: Iterable[OpView], reads: Iterable[str], platform: str):
        self._ops = list(ops)
        # Elsewhere, ops run in full precision; in programs of Paddle 2, results take their declared ranks.
        usual = platform == "cpu" and not program.newer
        self._steps = [HostStep(op) for op in self._ops if usual and HostStep.takes(op)]
        self._suspects = kinds.suspects(program, reads)

    def run(self, runner: Runner, env: Env) -> None:
        """Run once over ``env``, exact values by name, which is changed in place."""
        if len(self._steps) < len(self._ops) or runner.after_op is not None or self._strange(env):
            runner.run_ops(self._ops, env)
            return
        runner.strange = set()
        for step in self._steps:
            env.update(step.run(runner, env))

    def _strange(self, env: Mapping[str, Any]) -> bool:
        return any(name in env and kinds.is_strange(env[name], due) for name, due in self._suspects.items())


class HostStep:
    """One host op that neither runs blocks nor draws."""

    def __init__(self, op: OpView):
        self._op, self._definition = op, get_op(op.type)
        self._reads = [(slot, op.inputs.get(slot.name) or ()) for slot in self._definition.inputs]
        needed = [names for slot, names in self._reads if not _optional(self._definition, slot)]
        self._needed = frozenset(chain.from_iterable(needed))
        self._whole = frozenset(n for slot, names in self._reads if slot.wants != "meta" for n in names)
        attrs = [spec for spec in self._definition.attrs.values() if spec.param]
        self._keywords = {spec.param: op.attrs.get(spec.name, spec.default) for spec in attrs}

    @staticmethod
    def takes(op: OpView) -> bool:
        """Whether the op is one that can be run so."""
        definition = get_op(op.type)
        bound = all(op.inputs.get(s.name) or s.duplicable or _optional(definition, s) for s in definition.inputs)
        plain = not definition.updates and "key" not in definition.special and not sub_blocks(op)
        return definition.kind == "host" and bound and plain

    def run(self, runner: Runner, env: Env) -> dict[str, Any]:
        """Values by name of the variables that the op writes."""
        if any(env.get(n) is None for n in self._needed) or any(type(env.get(n)) is Form for n in self._whole):
            return runner.run_op(self._op, env)  # which says what is missing
        try:
            return self._results(runner, env)
        except Exception as error:
            runner.fail(self._op, env, error)

    def _results(self, runner: Runner, env: Env) -> dict[str, Any]:
        definition, op = self._definition, self._op
        values = [_bound(slot, names, env) for slot, names in self._reads]
        given = special(definition, op, None, Context(op, runner, env)) if definition.special else {}
        keywords = self._keywords | {name: given[name] for name in definition.special}
        result = definition.fn(*values, **keywords)
        if result is None:
            return {}
        results = (result,) if len(definition.outputs) == 1 else result
        named = scatter(definition, op, {s.name: r for s, r in zip(definition.outputs, results, strict=True)})
        return {name: exact(value) if follows_rows(value) else value for name, value in named.items()}


def _optional(definition: OpDef, slot: Slot) -> bool:
    return slot.dispensable or slot.param in definition.absent


def _bound(slot: Slot, names: Iterable[str], env: Mapping[str, Any]) -> Any:
    values = [env.get(name) for name in names]
    if slot.duplicable:
        return values
    return values[0] if values else None
