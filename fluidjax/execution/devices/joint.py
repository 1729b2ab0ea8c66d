"""A stage in which all devices compute the same, as one call: sums of gradients, and what reads these.

State that nobody needs any more is overwritten (donated).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax

from fluidjax.execution.devices.again import Values
from fluidjax.execution.devices.meeting import InMemory, OverAll, meeting, wait_for
from fluidjax.execution.executables.executable import Executable
from fluidjax.execution.executables.kept import Kept
from fluidjax.execution.executables.memory import may_lack_memory
from fluidjax.execution.feeding.feed import Handed
from fluidjax.execution.runs.asked import preparing_flags
from fluidjax.execution.scopes.state import distinct
from fluidjax.execution.steps.buffers import Buffers
from fluidjax.execution.steps.compiled import CompiledOps
from fluidjax.execution.steps.mesh import Unspreadable
from lowering.engine.either import NeedsOneForm
from lowering.engine.parallel.staged import Stage
from lowering.engine.plan import make_plan
from lowering.errors import Need
from lowering.registry import get_op


class _MayLackMemory(Exception):
    """Not an error: the step would not give back the state that it takes, should it fail."""


class Joint:
    """A stage of all devices.

    Args:
        devices: the physical devices.
        stage: what they compute.
        state: names of what may be overwritten.
    """

    def __init__(self, devices: Sequence[jax.Device], stage: Stage, state: Collection[str]):
        self._meeting = meeting(devices, stage)
        self._program = self._meeting.program
        self._platform = devices[0].platform
        self._kept = Kept(self._program)
        self._state = frozenset(state)
        self._demands = any(get_op(op.type).demands for block in self._program.blocks for op in block.ops)
        self._compiled: dict[Any, CompiledOps] = {}
        self._possible = True

    @property
    def traces(self) -> int:
        """How often it was traced."""
        return sum(compiled.traces for compiled in self._compiled.values())

    def forget(self) -> None:
        """Let go of all arrays."""
        self._meeting.forget()

    def run(
        self, values: Sequence[Values], fetches: tuple[str, ...], everywhere: Collection[str], seed: Any
    ) -> JointCall | None:
        """Compute, and add ``fetches`` to what devices know; returns what was called.

        None where it is impossible, with nothing done: a value is no array, or of another form on some device.

        Args:
            values: what each device knows.
            fetches: names of results.
            everywhere: those of them that all devices have to know. What is overwritten is then known to the first
                device only.
            seed: of the run.
        """
        (segment,) = make_plan(self._program, fetches).segments
        self._meeting.begin(values)
        if not self._possible or not self._meeting.possible(segment.reads, values):
            return None
        try:
            call = self._call(segment.ops, segment.reads, fetches, everywhere, values)
            call.compute(values, seed)
        except _MayLackMemory:
            self._state = frozenset()
            return self.run(values, fetches, everywhere, seed)
        except (Need, NeedsOneForm, Unspreadable):
            self._possible = False
            return None
        return call

    def _call(
        self,
        ops: Sequence[Any],
        reads: Sequence[str],
        fetches: tuple[str, ...],
        everywhere: Collection[str],
        values: Sequence[Values],
    ) -> JointCall:
        checked, _, _ = preparing_flags()
        # What a fault would have to give back is kept.
        given_away = frozenset() if checked and self._demands else self._state
        if self._meeting.keeps:
            given_away = given_away.difference(everywhere)
        replaced = tuple(n for n in reads if n in given_away and n in fetches)
        own = distinct([values[0][n].value for n in replaced])
        values[0].update(zip(replaced, map(Handed, own), strict=True))
        key = fetches, replaced, checked
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = CompiledOps(
                self._program,
                ops,
                tuple(n for n in reads if n not in replaced),
                tuple(n for n in fetches if n not in replaced),
                replaced=replaced,
                buffers=Buffers.of(own, pack=False),
                platform=self._platform,
                capacities={},
                kept=self._kept,
                checked=checked,
                spread=self._meeting.spread,
            )
        names = (*replaced, *(n for n in fetches if n not in replaced))
        left = {n: n in everywhere or n not in replaced for n in names}
        return JointCall(compiled, self._meeting, replaced, left)


class JointCall:
    """What was called for some fetches.

    Args:
        compiled: the ops.
        meeting: where devices meet.
        replaced: what the ops overwrite.
        left: the names of their results, and whether all devices have to know them.
    """

    possible = True  # to be repeated

    def __init__(
        self, compiled: CompiledOps, meeting: InMemory | OverAll, replaced: Sequence[str], left: Mapping[str, bool]
    ):
        self._compiled = compiled
        self._meeting = meeting
        self._replaced = replaced
        self._left = left

    def run(self, values: Sequence[Values], seed: Any) -> bool:
        """Compute again, from what an earlier stage left in the forms that it had when this was called first."""
        self._meeting.begin(values)
        self.compute(values, seed)
        return True

    def compute(self, values: Sequence[Values], seed: Any) -> None:
        """Compute, and add the results to what devices know."""
        replaced = tuple([self._meeting.whole(n, values) for n in self._replaced])
        inputs = [self._meeting.whole(n, values) for n in self._compiled.inputs]
        # Steps of one host's devices that overtake each other would wait for each other's threads.
        wait_for(inputs)
        step = self._compiled(replaced, inputs, seed, self._look_at)
        if step.failure is not None:
            raise step.failure
        for (name, everywhere), result in zip(self._left.items(), step.results, strict=True):
            if result is not None:
                self._meeting.leave(name, result, values, everywhere=everywhere)

    def _look_at(self, executable: Executable) -> None:
        """Before the first call."""
        if self._replaced and may_lack_memory(executable):
            raise _MayLackMemory
