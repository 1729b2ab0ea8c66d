"""What ops require of the numbers they read: labels and ids within range, non-zero integer divisors.

An op declares this beside its rule with ``@rule.check``: a function of some of the rule's parameters that returns the
demand on each of them. XLA's gathers and scatters clamp, wrap or drop instead of failing, so during tracing
a ``Watch`` turns each demand into

- a check on the host before the step, if an op of the outermost block reads values exactly as fed: a minimum
  and a maximum of a small array, at no cost to the compiled step;
- otherwise an int64 [2] flag of the step, (whether it is broken, the first bad value), that loops and branches pass
  outwards beside their overflow flags. A branch that is not taken leaves it zero.

Gradient ops demand nothing: their forward op has already read the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowering.errors import InvalidArgumentError
from lowering.program import OpView
from lowering.registry import Check, OpDef, Slot
from lowering.values import Array, LoDArray, Meta, Wide, data_of, is_padded, lod_of
from lowering.wide.sizes import sized

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Demand(NamedTuple):
    """Each of ``values`` must lie in [low, high) or equal ``but``.

    Attributes:
        param: the parameter of the rule that the values come from.
        values: integers; if they are the parameter's rows, padding rows are ignored.
        low, high: numbers, arrays that broadcast to ``values``, or None for no bound.
        but: an additional admissible value, such as an ``ignore_index``.
        nonzero: whether 0 is refused.
        words: what is expected, where the bounds are not numbers to be told.
    """

    param: str
    values: Array
    low: Any = 0
    high: Any = None
    but: int | None = None
    nonzero: bool = False
    words: str = ""

    def broken(self, values: Array) -> Array:
        """bool, like ``values``: where they violate the demand."""
        bad = values == 0 if self.nonzero else np.zeros((), bool)
        if self.low is not None:
            bad = bad | (values < self.low)
        if self.high is not None:
            bad = bad | (values >= self.high)
        return bad if self.but is None else bad & (values != self.but)

    def plainly_holds(self) -> bool:
        """Whether the extremes of values on the host alone prove that the demand is met."""
        values = self.values
        if not values.size:
            return True
        if self.nonzero or np.ndim(self.low) or np.ndim(self.high):
            return False
        return (self.low is None or values.min() >= self.low) and (self.high is None or values.max() < self.high)

    def expected(self) -> str:
        """The range in words."""
        if self.words:
            return self.words
        if self.nonzero:
            return "a divisor other than 0"
        traced = isinstance(self.high, jax.core.Tracer)
        least = " < the number of rows" if traced else f" < {self.high}"
        bounds = [
            (f"{self.low} <= ", self.low),
            (least if np.ndim(self.high) == 0 else " < the bound of its row", self.high),
        ]
        text = "value".join(words if bound is not None else "" for words, bound in bounds)
        return text if self.but is None else f"{text}, or {self.but}"


def nonzero(param: str, values: Array) -> list[Demand]:
    """What a division demands of its divisor: integers must be non-zero, floats are unrestricted."""
    return [Demand(param, values, low=None, nonzero=True)] if np.dtype(values.dtype).kind in "iu" else []


def within_lengths(values: Array, lengths: Array | None) -> Array:
    """``values`` [n, width, ...], zeroed past the length of each row; unchanged if no lengths are given."""
    if lengths is None:
        return values
    values = values.reshape(values.shape[:2])
    return values * (np.arange(values.shape[1]) < lengths.reshape(-1, 1))


def demands(check: Check, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> list[Demand]:
    """What an op demands of the values in its slots."""
    arguments = [_demanded(slot, values.get(slot.name)) for slot in check.inputs]
    return list(check.fn(*arguments, **{a.param: attrs.get(a.name, a.default) for a in check.attrs}) or ())


def _demanded(slot: Slot, value: Any) -> Any:
    if isinstance(value, list):
        return [_demanded(slot, v) for v in value]
    if value is None or slot.wants == "raw":
        return value
    if slot.wants == "meta":
        nrows = value.nrows if isinstance(value, LoDArray) else None
        return Meta(tuple(value.shape), value.dtype, lod_of(value), nrows)
    if slot.wants == "lod":
        return value if isinstance(value, LoDArray) else LoDArray(value)
    return data_of(value)


def bad_places(demand: Demand, source: Any) -> Array:
    """Where a demand is broken, ignoring padding rows of ``source``, from which its values come."""
    values = demand.values
    on_host = isinstance(values, np.ndarray)
    bad = demand.broken(values if on_host else values.astype(jnp.int64))
    if not isinstance(source, LoDArray) or not source.padded or np.shape(values)[:1] != (source.capacity,):
        return bad
    xp: Any = np if on_host else jnp
    valid = xp.arange(source.capacity) < source.rows()
    return bad & valid.reshape((-1,) + (1,) * (bad.ndim - 1))


class Fault(NamedTuple):
    """A broken demand of one op, to be reported."""

    op: OpView
    variable: str
    expected: str

    def error(self, value: int) -> InvalidArgumentError:
        """The error for the first bad value."""
        op, line = self.op, self.op.user_line().strip()
        where = f"\n  built at: {line}" if line else ""
        return InvalidArgumentError(
            f"{op.label} cannot take the value {value} of {self.variable!r}."
            f"{where}\n  expected: {self.expected}\n  received: {value}\n"
            f"  to do: correct what is fed or computed as {self.variable!r}; the variables of the step are as they"
            " were before it (FLAGS_check_values=0 turns this check off)"
        )


def _fault(definition: OpDef, op: OpView, demand: Demand) -> Fault:
    slot = definition.slot_of(demand.param)
    assert slot is not None
    return Fault(op, op.inputs[slot.name][0], demand.expected())


def _refuse_known(definition: OpDef, op: OpView, values: Mapping[str, Any], found: Sequence[Demand]) -> None:
    """Raise InvalidArgumentError for the first demand violated by values on the host."""
    for demand in found:
        if demand.plainly_holds():
            continue
        bad = bad_places(demand, source_of(definition, demand, values))
        if bad.any():
            raise _fault(definition, op, demand).error(int(np.broadcast_to(demand.values, bad.shape)[bad][0]))


def source_of(definition: OpDef, demand: Demand, values: Mapping[str, Any]) -> Any:
    """The contents of the slot that a demand refers to."""
    slot = definition.slot_of(demand.param)
    return values.get(slot.name) if slot is not None else None


class HostCheck(NamedTuple):
    """A check of fed values before a step.

    Attributes:
        fed: for each input slot read, the position of its value among the inputs of a step.
        known: values of the other slots, including their shapes.
        limits: if every demand is that an input lies in [0, high), the (position, high) of each; otherwise none.
    """

    definition: OpDef
    op: OpView
    fed: Mapping[str, int]
    known: Mapping[str, Any]
    limits: tuple[tuple[int, int], ...]

    def __call__(self, inputs: Sequence[Any]) -> None:
        """Raise InvalidArgumentError if the inputs of a step violate the op's demands."""
        if self.limits and all(below(inputs[at], high) for at, high in self.limits):
            return
        check = self.definition.demands
        assert check is not None
        values = {**self.known, **{slot: _on_host(inputs[at]) for slot, at in self.fed.items()}}
        _refuse_known(self.definition, self.op, values, demands(check, values, self.op.attrs))


def below(value: Any, high: int) -> bool:
    """Whether all integers, including padding rows, are in [0, high): read as unsigned, negatives are the largest."""
    data = value if type(value) is np.ndarray else np.asarray(data_of(value))
    if not data.size:
        return True
    found = data.view(_UNSIGNED[data.itemsize])
    return bool(found.item(found.argmax()) < high)  # a third of the time of a maximum over a small array


def _on_host(value: Any) -> Any:
    if isinstance(value, Wide):
        return np.asarray(value.data)
    return value if isinstance(value, np.ndarray) else jax.tree_util.tree_map(np.asarray, value)


@jax.tree_util.register_static
@dataclass(eq=False)
class Watch:
    """Collects the demands of the ops of one trace. A trace may return it: to jit it is a constant rather than a value.

    Attributes:
        inputs: values that the trace started from and the host knows, by position among its inputs.
        on_host: checks of these inputs.
        faults: the meaning of the step's flags, by flag name.
    """

    inputs: Mapping[int, Any] = field(default_factory=dict)
    on_host: list[HostCheck] = field(default_factory=list)
    faults: dict[str, Fault] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._positions = {id(part): at for at, v in self.inputs.items() for part in (v, data_of(v))}

    def see(
        self,
        definition: OpDef,
        op: OpView,
        values: Mapping[str, Any],
        flag: Callable[[str, Any], None],
        *,
        given: bool,
    ) -> bool:
        """Record the demands of ``op`` on its values; raise InvalidArgumentError if known values violate them.

        Args:
            flag: takes (name, flag of the run) where only the run can tell.
            given: whether the op certainly runs, so that known values can be refused.

        Returns:
            Whether they are met whenever the op runs: the values are known, or checked before the step.
        """
        check = definition.demands
        assert check is not None
        values = sized(check, values)
        on_host = given and not _bounded_by_rows(check, values, op.attrs)
        if on_host and self._checked_on_host(check, definition, op, values):
            return True
        found = demands(check, values, op.attrs)
        if given and not any(map(_traced, found)):
            _refuse_known(definition, op, values, [d._replace(values=np.asarray(d.values)) for d in found])
            return True
        for demand in found:
            fault = _fault(definition, op, demand)
            name = f"fault/{op.block_idx}/{op.index}/{fault.variable}"
            self.faults[name] = fault
            flag(name, flag_of(demand, source_of(definition, demand, values)))
        return False

    def parted(self, flags: Mapping[str, Array]) -> tuple[Array | None, dict[str, Array]]:
        """Split the flags of a whole trace: (first fault as [number from 1, or 0; value], or None; overflow flags)."""
        self.inputs, self._positions = {}, {}
        self.faults = {name: fault for name, fault in self.faults.items() if name in flags}
        found = [flags[name] for name in self.faults]
        return _first(found) if found else None, {n: f for n, f in flags.items() if n not in self.faults}

    def failure(self, first: np.ndarray) -> InvalidArgumentError | None:
        """The error of a step's first fault, as returned by ``parted``; None if there is none."""
        number = first.item(0)
        return list(self.faults.values())[number - 1].error(first.item(1)) if number else None

    def _checked_on_host(self, check: Check, definition: OpDef, op: OpView, values: Mapping[str, Any]) -> bool:
        fed: dict[str, int] = {}
        known: dict[str, Any] = {}
        for slot in check.inputs:
            value = values.get(slot.name)
            if slot.wants == "meta" or value is None:
                known[slot.name] = _shapes(value)
                continue
            at = self._positions.get(id(value if slot.wants == "lod" else data_of(value)))
            if at is None:
                return False
            fed[slot.name] = at
        if fed:
            limits = self._limits(demands(check, values, op.attrs))
            self.on_host.append(HostCheck(definition, op, fed, known, limits))
        return bool(fed)

    def _limits(self, found: Sequence[Demand]) -> tuple[tuple[int, int], ...]:
        limits = []
        for demand in found:
            at = self._positions.get(id(demand.values))
            if at is None or demand.low != 0 or type(demand.high) is not int or demand.values.dtype.kind not in "iu":
                return ()
            limits.append((at, demand.high))
        return tuple(limits)


def _bounded_by_rows(check: Check, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> bool:
    """Whether a demand depends on how much of a value is used, rows or places, which is known only to a run."""
    shapes = [values.get(slot.name) for slot in check.inputs if slot.wants == "meta"]
    some_used = any(is_padded(v) or isinstance(v, Meta) for v in shapes)
    return some_used and any(isinstance(d.high, jax.core.Tracer) for d in demands(check, values, attrs))


def _traced(demand: Demand) -> bool:
    return any(isinstance(v, jax.core.Tracer) for v in (demand.values, demand.low, demand.high))


def _shapes(value: Any) -> Any:
    """A placeholder for a value of which only the shape and dtype are read."""
    if isinstance(value, list):
        return [_shapes(v) for v in value]
    if value is None:
        return None
    known = (0 if isinstance(n, jax.core.Tracer) else n for n in value.shape)  # no demand depends on the others
    return jax.ShapeDtypeStruct(tuple(known), value.dtype)


def flag_of(demand: Demand, source: Any) -> Array:
    """int64 [2]: whether a demand is broken, and the first value that breaks it."""
    bad = jnp.asarray(bad_places(demand, source))
    if not bad.size:
        return jnp.zeros(2, jnp.int64)
    first = jnp.broadcast_to(demand.values, bad.shape).reshape(-1)[jnp.argmax(bad)]
    return jnp.stack([bad.any().astype(jnp.int64), first.astype(jnp.int64)])


def _first(flags: Sequence[Array]) -> Array:
    """int64 [2]: the number of the first raised flag, from 1, or 0, and its value."""
    stacked = jnp.stack(flags)
    at = jnp.argmax(stacked[:, 0] != 0)
    return jnp.stack([jnp.where(stacked[at, 0] != 0, at + 1, 0), stacked[at, 1]])


def needing(room: Any, capacity: int) -> Array:
    """The flag of a buffer of this capacity: the room that is needed if that is more, else 0."""
    room = jnp.asarray(room, jnp.int32).reshape(())
    return jnp.where(room > capacity, room, 0)


def merged(known: Array, new: Array) -> Array:
    """Merge two flags of one name: for overflows whether there was any, or the largest need; for faults the first."""
    if new.ndim:
        return jnp.where(known[0] != 0, known, new)
    return known | new if new.dtype == bool else jnp.maximum(known, new)


def over_steps(flags: Array) -> Array:
    """Merge a flag per step [steps, ...] into one."""
    if flags.ndim == 1:
        return flags.any() if flags.dtype == bool else flags.max(initial=0)
    return flags[jnp.argmax(flags[:, 0])] if flags.shape[0] else jnp.zeros(2, jnp.int64)
