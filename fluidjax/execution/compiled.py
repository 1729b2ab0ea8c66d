"""One jitted run of ops: values in by name, values out by name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxlib._jax import ArrayImpl

from fluidjax.execution.guard import Checks, find_checks
from fluidjax.execution.packing import NOTHING, Packing
from lowering.block import Runner
from lowering.checks import Watch
from lowering.counts import plain
from lowering.errors import InvalidArgumentError, NeedsExact
from lowering.program import OpView, ProgramView
from lowering.registry import get_op
from lowering.values import LoDArray, RankTable, TensorArray, data_of

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


def _form(value: Any) -> Hashable:
    """What a trace depends on: shapes and dtypes, and of a ragged value how long its longest sequences may be."""
    if type(value) in _PLAIN:
        return value.shape, value.dtype
    leaves, structure = jax.tree_util.tree_flatten(value)
    return structure, *((np.shape(leaf), getattr(leaf, "dtype", None)) for leaf in leaves)


def _same_form(before: Any, after: Any) -> bool:
    return getattr(after, "shape", None) == before.shape and getattr(after, "dtype", None) == before.dtype


class _NeedsInputs(Exception):
    """What was traced may not overwrite its inputs: a run may have to be repeated, or a variable changes its form."""


class Step(NamedTuple):
    """What a step returns: ``results``, a flag of each buffer that overflowed, the error of a fault that it found."""

    results: tuple[Any, ...]
    overflows: Mapping[str, Any]
    failure: InvalidArgumentError | None


class CompiledOps:
    """Ops as one jitted function ``(replaced, values, seed) -> ((*replaced, *outputs), overflow flags, failure)``.

    A step that finds a fault (see ``lowering.checks``) returns the ``replaced`` that it overwrote as they were.

    Args:
        program, ops: what to run.
        inputs: names of what the ops read.
        outputs: names of the results; one that the ops did not write is returned as None.
        replaced: names of plain arrays that the ops read and write; passed and returned as ``packing`` joins them. The
            call overwrites them, unless there may be an overflow to flag, or one of them comes out in another shape.
        capacities: see ``lowering.Runner``; shared with the caller, who doubles what overflowed.
        fixed: how many inputs, the first ones, are the program's state.
        checked: whether ops' demands on their numbers are checked.
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
        fixed: int = 0,
        checked: bool = False,
    ):
        self._program = program
        self._ops = ops
        self.inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._replaced = tuple(replaced)
        self._packing = packing
        self._donate = True
        self._platform = platform
        self._capacities = capacities
        self._fixed = fixed
        self._checked = checked and any(get_op(op.type).demands for b in program.blocks for op in b.ops)
        self._checks: dict[Hashable, Checks] = {}
        self._jitted: dict[Hashable, Any] = {}
        self.used: dict[str, int] = {}
        self.uneven: dict[str, NeedsExact] = {}
        self.traces = 0

    def __call__(self, replaced: tuple[Any, ...], values: Sequence[Any], seed: Any) -> Step:
        """Run the ops.

        Raises:
            InvalidArgumentError: a value that was fed is none that its op can take; nothing ran.
        """
        try:
            if all(type(v) in _PLAIN for v in values):
                key: Hashable = ()
                function = self._jitted.get(()) or self._jit((), [None] * len(values), values)
                arguments = replaced, tuple(values), seed
            else:
                parts = [split_static(v) for v in values]
                key = tuple(p[1] for p in parts)
                function = self._jitted.get(key) or self._jit(key, [p[2] for p in parts], values)
                arguments = replaced, tuple(p[0] for p in parts), seed
            if not self._checked:
                results, overflows, *_ = function(*arguments)
                return Step(results, overflows, None)
            checks = self._checks_of(key, function, arguments, values)
            checks.before(values, arguments)
            left = checks.step(*arguments)
            return Step(left[0], left[1], checks.after(left))
        except _NeedsInputs:
            self._donate = False
            self._jitted.clear()
            self._checks.clear()
            return self(replaced, values, seed)

    @property
    def donates(self) -> bool:
        """Whether a call overwrites ``replaced``, so that a step that fails gives them back."""
        return self._donate

    def _checks_of(self, key: Hashable, function: Any, arguments: Any, values: Sequence[Any]) -> Checks:
        """How values of these forms are checked; they are traced here when they come the first time."""
        forms = key, *map(_form, values[self._fixed :])
        return self._checks.get(forms) or self._find_checks(forms, function, arguments)

    def _find_checks(self, forms: Hashable, function: Any, arguments: Any) -> Checks:
        replaced = arguments[0] if self._donate else ()
        found = self._checks[forms] = find_checks(function, function.trace(*arguments), replaced)
        return found

    def _seen_on_host(self, values: Sequence[Any]) -> list[int]:
        """Positions of the inputs, state apart, that the host reads without waiting for the device."""
        kinds = _PLAIN if self._platform == "cpu" else (np.ndarray,)
        return [at for at in range(self._fixed, len(values)) if isinstance(data_of(values[at]), kinds)]

    def _jit(self, key: Hashable, rebuilds: Sequence[Rebuild | None], values: Sequence[Any]) -> Any:
        donated = (0,) if self._donate else ()
        traceable = self._traceable(rebuilds, self._seen_on_host(values))
        function = self._jitted[key] = jax.jit(traceable, donate_argnums=donated)
        return function

    def _traceable(self, rebuilds: Sequence[Rebuild | None], seen: Sequence[int]) -> Callable[..., Any]:
        def run(replaced: Any, values: Any, seed: Any) -> tuple[tuple[Any, ...], dict[str, Any], Any, Watch]:
            before = self._packing.split(replaced)
            env = dict(zip(self._replaced, before, strict=True))
            for name, data, rebuild in zip(self.inputs, values, rebuilds, strict=True):
                env[name] = data if rebuild is None else rebuild(data)
            key = None if seed is None else jax.random.wrap_key_data(seed, impl="threefry2x32")
            watch = Watch({at: env[self.inputs[at]] for at in seen})
            runner = Runner(
                self._program,
                key=key,
                platform=self._platform,
                capacities=self._capacities,
                watch=watch if self._checked else None,
            )
            runner.run_ops(self._ops, env)
            faults, overflows = watch.parted(runner.overflows)
            after = [plain(env[n]) for n in self._replaced]
            if self._donate and before:
                if overflows or not all(map(_same_form, before, after)):
                    raise _NeedsInputs
            state = self._packing.join_traced(after)
            self.traces += 1
            self.used.update(runner.used)
            self.uneven.update(runner.uneven)
            return (*state, *(env.get(n) for n in self._outputs)), overflows, faults, watch

        return run
