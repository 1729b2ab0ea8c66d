"""A stretch of a program's ops as a function of values by name: one half of a program that runs in two halves.

The gradient ops of a static block in an eager net run later than its forward ops, on what these left: any value of the
lowering passes between the two, including step scopes and arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fluidjax.execution.executables.kept import Kept
from fluidjax.execution.rooms.buckets import enlarged
from fluidjax.execution.steps.compiled import CompiledOps, still_valid
from lowering.engine.interrupts import uninterrupted
from lowering.engine.plan import Segment, cut
from lowering.engine.runner import Runner
from lowering.engine.x64 import with_x64
from lowering.errors import LoweringError, Need, NeedsConcrete, NeedsExact
from lowering.program import OpView, ProgramView
from lowering.values import exact

_MAX_ATTEMPTS = 30


class Stretch:
    """Some ops of a program's first block, in order.

    Args:
        program: the program.
        ops: the ops.
        outputs: those of the names written by the ops that are wanted afterwards.
        platform: 'cpu', 'gpu' or 'tpu'.
        capacities: the sizes of loops' buffers; stretches of one program share them.
        checked: whether labels, ids and divisors are checked.

    Attributes:
        reads: the names that the ops read before they write them.
        traces: how often ops were compiled.
    """

    def __init__(
        self,
        program: ProgramView,
        ops: Sequence[OpView],
        outputs: Sequence[str],
        *,
        platform: str,
        capacities: dict[str, int],
        checked: bool,
    ):
        self._program, self._ops, self._outputs = program, list(ops), list(outputs)
        self._platform, self._capacities, self._checked = platform, capacities, checked
        self._kept = Kept(program)
        self._outside: set[int] = set()
        self._retired = 0
        self._compiled: dict[Any, CompiledOps] = {}
        self._cut()
        written: set[str] = set()
        reads: dict[str, None] = {}
        for segment in self._segments:
            reads.update((n, None) for n in segment.reads if n not in written)
            written.update(segment.writes)
        self.reads = tuple(reads)

    @property
    def traces(self) -> int:
        """How often ops were compiled."""
        return self._retired + sum(c.traces for c in self._compiled.values())

    def _cut(self) -> None:
        self._segments = cut(self._program, self._ops, self._outputs, self._outside)
        self._keep(still_valid(self._compiled, self._segments))

    def _keep(self, compiled: dict[Any, CompiledOps]) -> None:
        self._retired = self.traces - sum(c.traces for c in compiled.values())
        self._compiled = compiled

    def run(self, given: Mapping[str, Any], seed: Any) -> dict[str, Any]:
        """The wanted values by name; those that no op wrote are left out.

        Args:
            given: what the ops read.
            seed: of the run, None where no op draws.

        Raises:
            InvalidArgumentError: an op cannot take a value.
        """
        for _ in range(_MAX_ATTEMPTS):
            env = dict(given)
            try:
                if self._run_all(env, seed):
                    return {n: env[n] for n in self._outputs if n in env}
            except (NeedsConcrete, NeedsExact) as needed:
                self._run_outside(needed)
        raise LoweringError(
            f"a loop still overflows its buffers after {_MAX_ATTEMPTS} attempts ({self._capacities}): expected it to "
            "end; check the loop's condition"
        )

    def _run_all(self, env: dict[str, Any], seed: Any) -> bool:
        return with_x64(lambda: all(self._run(segment, env, seed) for segment in self._segments))

    def _run_outside(self, needed: Need) -> None:
        if needed.op_index < 0 or needed.op_index in self._outside:
            raise needed.refusal() from needed
        self._outside.add(needed.op_index)
        self._cut()

    def _run(self, segment: Segment, env: dict[str, Any], seed: Any) -> bool:
        """Whether a segment ran; else a buffer was enlarged."""
        env.update({name: self._placed(env[name]) for name in segment.reads if name in env})
        if segment.host:
            self._run_on_host(segment, env, seed)
            return True
        inputs = tuple(n for n in segment.reads if n in env)
        compiled = self._compiled_for(segment, inputs)
        step = uninterrupted(lambda: compiled((), [env[n] for n in inputs], seed))
        full = [name for name, flag in step.overflows.items() if bool(flag)]
        if full:
            for name in full:
                if name in compiled.uneven:
                    raise compiled.uneven[name]
                self._capacities[name] = enlarged(compiled.used[name], step.overflows[name])
            self._keep({})
            return False
        if step.failure is not None:
            raise step.failure
        env.update({n: v for n, v in zip(segment.writes, step.results, strict=True) if v is not None})
        return True

    def _compiled_for(self, segment: Segment, inputs: tuple[str, ...]) -> CompiledOps:
        key = segment.ops[0].index, inputs, segment.writes
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = CompiledOps(
                self._program,
                segment.ops,
                inputs,
                segment.writes,
                platform=self._platform,
                capacities=self._capacities,
                kept=self._kept,
                checked=self._checked,
            )
        return found

    def _placed(self, value: Any) -> Any:
        """The value as later runs will have it: what is compiled for arrays on the host would be used only once."""
        return with_x64(jax.device_put, value) if isinstance(value, np.ndarray) else value

    def _run_on_host(self, segment: Segment, env: dict[str, Any], seed: Any) -> None:
        local = {n: exact(env[n]) for n in segment.reads if n in env}
        runner = Runner(
            self._program, key=_key(seed), interpret=True, platform=self._platform, capacities=self._capacities
        )
        runner.run_ops(segment.ops, local)
        env.update({n: local[n] for n in segment.writes if n in local})


def _key(seed: Any) -> Any:
    return None if seed is None else jax.random.wrap_key_data(jax.device_put(seed), impl="threefry2x32")
