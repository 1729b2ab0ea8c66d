"""One jitted run of ops: values in by name, values out by name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxlib._jax import ArrayImpl

from fluidjax.execution.packing import NOTHING, Packing
from lowering.block import Runner
from lowering.program import OpView, ProgramView
from lowering.values import LoDArray, RankTable, TensorArray

Rebuild = Callable[[Any], Any]
_PLAIN = (np.ndarray, ArrayImpl)


def split_static(value: Any) -> tuple[Any, Hashable, Rebuild | None]:
    """(what jit is given, a key of what the trace closes over, how to put both together again).

    In exact mode LoD offsets are constants of the trace, so that ops whose output size depends on them work;
    bucketed values (with a traced row count) are given to jit whole.
    """
    if isinstance(value, LoDArray) and not value.padded and value.lod and _host(value.lod):
        key = tuple(level.tobytes() for level in value.lod), value.longest
        return value.data, ("lod", key), value.with_data
    if isinstance(value, RankTable) and _host((value.index, value.lengths, value.offsets, *value.lod)):
        leaves = (value.index, value.lengths, value.offsets, *value.lod)
        return (), ("rank", tuple(v.tobytes() for v in leaves), value.capacity), lambda _: value
    if isinstance(value, TensorArray) and value.items:
        parts = [split_static(item) for item in value.items]

        def rebuild(data: Any) -> TensorArray:
            items = (put(d) if put else d for d, (_, _, put) in zip(data, parts, strict=True))
            return TensorArray(tuple(items))

        return tuple(p[0] for p in parts), ("array", tuple(p[1] for p in parts)), rebuild
    return value, None, None


def _host(leaves: Sequence[Any]) -> bool:
    return all(isinstance(leaf, np.ndarray) for leaf in leaves)


def _same_form(before: Any, after: Any) -> bool:
    return getattr(after, "shape", None) == before.shape and getattr(after, "dtype", None) == before.dtype


class _NeedsInputs(Exception):
    """What was traced may not overwrite its inputs: a run may have to be repeated, or a variable changes its form."""


class CompiledOps:
    """Ops as one jitted function ``(replaced, values, seed) -> ((*replaced, *outputs), overflow flags)``.

    Args:
        program, ops: what to run.
        inputs: names of what the ops read.
        outputs: names of the results; one that the ops did not write is returned as None.
        replaced: names of plain arrays that the ops read and write; passed and returned as ``packing`` joins them. The
            call overwrites them, unless there may be an overflow to flag, or one of them comes out in another shape.
        capacities: see ``lowering.Runner``; shared with the caller, who doubles what overflowed.
    """

    def __init__(
        self,
        program: ProgramView,
        ops: Sequence[OpView],
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        replaced: Sequence[str] = (),
        packing: Packing = NOTHING,
        platform: str,
        capacities: Mapping[str, int],
    ):
        self._program = program
        self._ops = ops
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._replaced = tuple(replaced)
        self._packing = packing
        self._donate = True
        self._platform = platform
        self._capacities = capacities
        self._jitted: dict[Hashable, Any] = {}
        self.used: dict[str, int] = {}
        self.traces = 0

    def __call__(self, replaced: tuple[Any, ...], values: Sequence[Any], seed: Any) -> tuple[tuple[Any, ...], Any]:
        try:
            if all(type(v) in _PLAIN for v in values):
                function = self._jitted.get(()) or self._jit((), [None] * len(values))
                return function(replaced, tuple(values), seed)
            parts = [split_static(v) for v in values]
            key = tuple(p[1] for p in parts)
            function = self._jitted.get(key) or self._jit(key, [p[2] for p in parts])
            return function(replaced, tuple(p[0] for p in parts), seed)
        except _NeedsInputs:
            self._donate = False
            self._jitted.clear()
            return self(replaced, values, seed)

    def _jit(self, key: Hashable, rebuilds: Sequence[Rebuild | None]) -> Any:
        donated = (0,) if self._donate else ()
        function = self._jitted[key] = jax.jit(self._traceable(rebuilds), donate_argnums=donated)
        return function

    def _traceable(self, rebuilds: Sequence[Rebuild | None]) -> Callable[..., Any]:
        def run(replaced: Any, values: Any, seed: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            before = self._packing.split(replaced)
            env = dict(zip(self._replaced, before, strict=True))
            for name, data, rebuild in zip(self._inputs, values, rebuilds, strict=True):
                env[name] = data if rebuild is None else rebuild(data)
            key = None if seed is None else jax.random.wrap_key_data(seed, impl="threefry2x32")
            runner = Runner(self._program, key=key, platform=self._platform, capacities=self._capacities)
            runner.run_ops(self._ops, env)
            after = [env[n] for n in self._replaced]
            state = self._packing.join_traced(after)
            if self._donate and before and (runner.overflows or not all(map(_same_form, before, after))):
                raise _NeedsInputs
            self.traces += 1
            self.used.update(runner.used)
            return (*state, *(env.get(n) for n in self._outputs)), runner.overflows

        return run
