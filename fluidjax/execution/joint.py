"""A stage in which all devices compute the same, as one call over them: sums of gradients, and what reads these.

Each device has its own arrays; those of one name are passed as the rows of one. State that nobody needs any more is
overwritten (donated).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxlib.xla_client import ArrayImpl

from fluidjax.execution.again import Values
from fluidjax.execution.asked import preparing_flags
from fluidjax.execution.buffers import Buffers
from fluidjax.execution.compiled import CompiledOps
from fluidjax.execution.executable import Executable
from fluidjax.execution.feed import Handed
from fluidjax.execution.kept import Kept
from fluidjax.execution.memory import may_lack_memory
from fluidjax.execution.mesh import Spread, Unspreadable, as_rows, rows_of
from fluidjax.execution.state import distinct
from lowering.engine.either import NeedsOneForm
from lowering.engine.plan import make_plan
from lowering.engine.spread import SpreadProgram
from lowering.engine.staged import Sum
from lowering.errors import Need
from lowering.registry import get_op

Joined = dict[str, tuple[Any, Any]]  # by name: the first device's array, and those of all as one
_NOTHING = None, None


class _MayLackMemory(Exception):
    """Not an error: the step would not give back the state that it takes, should it fail."""


class _Rows(Spread):
    """Of all that a step takes and leaves, each device has as many rows."""

    def _left(self, value: Any, spec: PartitionSpec) -> Any:
        if value is not None and np.ndim(value) == 0:
            raise Unspreadable("a single number has no rows")
        return super()._left(value, spec)


class Joint:
    """A stage of all devices.

    Args:
        devices: the physical devices.
        program: of the stage.
        sums: that it begins with.
        state: names of what may be overwritten.
    """

    def __init__(
        self, devices: Sequence[jax.Device], program: SpreadProgram, sums: Sequence[Sum], state: Collection[str]
    ):
        self._program = program
        self._sums = sums
        self._platform = devices[0].platform
        self._spread = _Rows(devices, program, frozenset())
        self._rows = rows_of(devices)
        self._kept = Kept(program.program)
        self._state = frozenset(state)
        self._demands = any(get_op(op.type).demands for block in program.program.blocks for op in block.ops)
        self._compiled: dict[Any, CompiledOps] = {}
        self._possible = True
        self._joined: Joined = {}

    @property
    def traces(self) -> int:
        """How often it was traced."""
        return sum(compiled.traces for compiled in self._compiled.values())

    def forget(self) -> None:
        """Let go of all arrays."""
        self._joined.clear()

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
        (segment,) = make_plan(self._program.program, fetches).segments
        _name(self._sums, values)
        if not self._possible or not all(_are_alike([known.get(n) for known in values]) for n in segment.reads):
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
        replaced = tuple(n for n in reads if n in given_away and n in fetches)
        own = distinct([values[0][n].value for n in replaced])
        values[0].update(zip(replaced, map(Handed, own), strict=True))
        key = fetches, replaced, checked
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = CompiledOps(
                self._program.program,
                ops,
                tuple(n for n in reads if n not in replaced),
                tuple(n for n in fetches if n not in replaced),
                replaced=replaced,
                buffers=Buffers.of(own, pack=False),
                platform=self._platform,
                capacities={},
                kept=self._kept,
                checked=checked,
                spread=self._spread,
            )
        names = (*replaced, *(n for n in fetches if n not in replaced))
        left = {n: n in everywhere or n not in replaced for n in names}
        return JointCall(compiled, self._rows, self._sums, replaced, left, self._joined)


class JointCall:
    """What was called for some fetches.

    Args:
        compiled: the ops.
        rows: where their arrays are.
        sums: what they begin with.
        replaced: what they overwrite.
        left: the names of their results, and whether all devices have to know them.
        joined: what was read or left.
    """

    possible = True  # to be repeated

    def __init__(
        self,
        compiled: CompiledOps,
        rows: NamedSharding,
        sums: Sequence[Sum],
        replaced: Sequence[str],
        left: Mapping[str, bool],
        joined: Joined,
    ):
        self._compiled = compiled
        self._rows = rows
        self._sums = sums
        self._replaced = replaced
        self._left = left
        self._lasting = frozenset((*replaced, *compiled.inputs)).difference(s.parts[0] for s in sums)
        self._joined = joined

    def run(self, values: Sequence[Values], seed: Any) -> bool:
        """Compute again, from what an earlier stage left in the forms that it had when this was called first."""
        _name(self._sums, values)
        self.compute(values, seed)
        return True

    def compute(self, values: Sequence[Values], seed: Any) -> None:
        """Compute, and add the results to what devices know."""
        replaced = tuple([self._whole(n, values) for n in self._replaced])
        inputs = [self._whole(n, values) for n in self._compiled.inputs]
        # Steps of one host's devices that overtake each other would wait for each other's threads.
        jax.block_until_ready(inputs)
        step = self._compiled(replaced, inputs, seed, self._look_at)
        if step.failure is not None:
            raise step.failure
        for (name, everywhere), whole in zip(self._left.items(), step.results, strict=True):
            if whole is not None:
                self._add(name, whole, values, everywhere=everywhere)

    def _add(self, name: str, whole: jax.Array, values: Sequence[Values], *, everywhere: bool) -> None:
        if name in self._lasting:
            self._joined[name] = whole.addressable_data(0), whole
        parts = [whole.addressable_data(i) for i in range(len(values) if everywhere else 1)]
        for known, part in zip_longest(values, parts):
            known[name] = None if part is None else Handed(part)

    def _whole(self, name: str, values: Sequence[Values]) -> Any:
        """The devices' arrays as one. Those of state are copies of the first device's."""
        first = values[0][name].value
        of_first, whole = self._joined.get(name, _NOTHING)
        if of_first is not first:
            whole = as_rows([known[name].value for known in values], self._rows)
            if name in self._lasting:
                self._joined[name] = first, whole
        return whole

    def _look_at(self, executable: Executable) -> None:
        """Before the first call."""
        if self._replaced and may_lack_memory(executable):
            raise _MayLackMemory


def _name(sums: Sequence[Sum], values: Sequence[Values]) -> None:
    """Let every device know its part of a sum by the name that all use."""
    for s in sums:
        for known, part in zip(values, s.parts, strict=True):
            known[s.parts[0]] = known[part]


def _are_alike(values: Sequence[Any]) -> bool:
    """Whether devices have arrays of one form."""
    arrays = [value.value for value in values if type(value) is Handed]
    plain = len(arrays) == len(values) and all(type(array) is ArrayImpl and array.ndim for array in arrays)
    return plain and len({(array.shape, array.dtype) for array in arrays}) == 1
