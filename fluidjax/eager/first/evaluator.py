"""A jaxpr as a list of NumPy calls.

The rule remains the definition of the op; this is another way to run its trace, for arrays so small that
compiling takes a thousand times longer than computing. Primitives without an equivalent in NumPy, and float16 and
bfloat16, which XLA computes in wider types, are not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fluidjax.eager.first import elementwise, layout, places, sums
from fluidjax.eager.first.notation import Equation, Function, Shape, Step
from fluidjax.eager.first.notation import Unknown as Unknown
from fluidjax.eager.first.rewriting import Rewriting
from lowering.engine.expansion import expansion
from lowering.extend import scan_counts

_TYPES = frozenset(map(np.dtype, "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()))
TABLE = {**elementwise.PRIMITIVES, **layout.PRIMITIVES, **places.PRIMITIVES, **sums.PRIMITIVES}
_INNER = "jaxpr", "call_jaxpr"  # where a call stores the jaxpr it calls
_CALLS = frozenset("jit closed_call custom_jvp_call custom_vjp_call remat2".split())

_EACH, _BYTE, _PRODUCT = 2e-6, 1e-9, 1e-10  # seconds: per call, per byte read or written, per multiplication

Slots = dict[Any, int]  # variable -> its position among the values of a run


class TooLong(Exception):
    """A loop took longer than allowed."""


class Meter:
    """The estimated seconds of runs, and how many are allowed: by sizes, so that runs repeat exactly."""

    def __init__(self) -> None:
        self.spent, self.allowed = 0.0, float("inf")


class Evaluator:
    """A jaxpr without effects, on NumPy.

    Attributes:
        cost: the estimated seconds of a run, without repetitions of loops.
        size: the number of calls, counting those in the bodies of loops once.
    """

    def __init__(self, closed: Any, meter: Meter) -> None:
        self.meter, self.cost, self.size = meter, 0.0, 0
        self._steps: list[Step] = []
        self._constants: list[tuple[int, Any]] = []
        self._count = 0
        slots: Slots = {}
        inner = _opened(closed)[0]
        self._reads = [self._place(var, slots) for var in inner.invars]
        self._gives = self._add(closed, slots)
        self._calls = [(step.function, step.reads, step.writes) for step in Rewriting(self._steps, self._gives).steps]

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The results for NumPy arrays; they may be parts of these, or NumPy scalars."""
        meter = self.meter
        meter.spent += self.cost
        if meter.spent > meter.allowed:
            raise TooLong
        env = self._start.copy()
        for slot, value in zip(self._reads, values, strict=True):
            env[slot] = value
        for function, reads, writes in self._calls:
            found = function(*[env[slot] for slot in reads])
            if writes.__class__ is int:
                env[writes] = found
            else:
                for slot, value in zip(writes, found, strict=True):  # type: ignore[arg-type]
                    env[slot] = value
        return [env[slot] for slot in self._gives]

    @cached_property
    def _start(self) -> list[Any]:
        """The initial values of a run: constants at their positions."""
        values: list[Any] = [None] * self._count
        for slot, value in self._constants:
            values[slot] = np.asarray(value)
        return values

    @cached_property
    def constants(self) -> frozenset[int]:
        """The ids of arrays shared by all runs."""
        return frozenset(map(id, self._start)) - {id(None)}

    # Translation of equations to calls.

    def _place(self, var: Any, slots: Slots) -> int:
        _shape(var)
        return slots.setdefault(var, self._new())

    def _new(self) -> int:
        self._count += 1
        return self._count - 1

    def _slot(self, var: Any, slots: Slots) -> int:
        return self._constant(np.asarray(var.val, _shape(var).dtype)) if _literal(var) else slots[var]

    def _constant(self, value: Any) -> int:
        slot = self._new()
        self._constants.append((slot, value))
        return slot

    def _add(self, closed: Any, slots: Slots) -> list[int]:
        """The positions of the results; `slots` has those of the inputs."""
        jaxpr, consts = _opened(closed)
        if jaxpr.effects:
            raise Unknown(str(jaxpr.effects))
        for var, value in zip(jaxpr.constvars, consts, strict=True):
            _shape(var)
            slots[var] = self._constant(value)
        for eqn in _needed(jaxpr):
            self._add_equation(eqn, slots)
        return [self._slot(var, slots) for var in jaxpr.outvars]

    def _add_equation(self, eqn: Any, slots: Slots) -> None:
        name, reads = eqn.primitive.name, [self._slot(var, slots) for var in eqn.invars]
        if name == "platform_index":
            slots[eqn.outvars[0]] = self._constant(np.asarray(_branch_here(eqn), np.int32))
            return
        closed, taken = self._called(eqn, reads)
        if closed is not None:
            gives = self._add(closed, dict(zip(_opened(closed)[0].invars, taken, strict=True)))
            slots.update(zip(eqn.outvars, gives, strict=True))
            return
        if name == "add" and _zero(eqn.invars[1]):
            slots[eqn.outvars[0]] = reads[0]
            return
        literals = list(map(_literal, eqn.invars))
        shapes = Equation(eqn.params, [_shape(v) for v in eqn.invars], [_shape(v) for v in eqn.outvars], literals)
        function = _LOOPS[name](eqn, self) if name in _LOOPS else self._call(name, shapes)
        writes = tuple([self._place(var, slots) for var in eqn.outvars])
        given = writes if eqn.primitive.multiple_results else writes[0]
        self._steps.append(Step(name, shapes, function, tuple(reads), given))

    def _called(self, eqn: Any, reads: list[int]) -> tuple[Any, list[int]]:
        """The jaxpr that an equation calls, and the positions of its inputs; None if it calls none, or one of several.

        Of branches for platforms, it is that of this one; of a primitive made of others, what it is made of.
        """
        if eqn.primitive.name in _CALLS:
            return next(eqn.params[name] for name in _INNER if name in eqn.params), reads
        if eqn.primitive.name == "cond" and (which := dict(self._constants).get(reads[0])) is not None:
            branches = eqn.params["branches"]
            return branches[min(max(int(which), 0), len(branches) - 1)], reads[1:]
        return expansion(eqn), reads

    def _call(self, name: str, eqn: Equation) -> Function:
        make = TABLE.get(name)
        found = None if make is None else make(eqn)
        if found is None:
            raise Unknown(name)
        self.size += 1
        self.cost += _seconds(name, eqn.params, eqn.ins, eqn.outs)
        return found

    def inner(self, closed: Any) -> Evaluator:
        """The body of a loop, or a branch."""
        found = Evaluator(closed, self.meter)
        self.size += found.size
        return found


def _opened(closed: Any) -> tuple[Any, Sequence[Any]]:
    """The jaxpr itself, and its constants. (The classes of jaxprs are in ``jax.extend``, which imports Pallas.)"""
    return (closed.jaxpr, closed.consts) if hasattr(closed, "jaxpr") else (closed, ())


def _branch_here(eqn: Any) -> int:
    """The branch for CPUs, where alone anything runs on NumPy (see ``runs.wanted``)."""
    return next(k for k, names in enumerate(eqn.params["platforms"]) if names is None or "cpu" in names)


def _literal(var: Any) -> bool:
    return hasattr(var, "val")


def _zero(var: Any) -> bool:
    return _literal(var) and var.aval.shape == () and var.val == 0


def _shape(var: Any) -> Shape:
    dtype = getattr(var.aval, "dtype", None)
    if dtype not in _TYPES:
        raise Unknown(str(var.aval))
    return Shape(tuple(var.aval.shape), np.dtype(dtype))


def _needed(jaxpr: Any) -> Iterator[Any]:
    """The equations that results depend on."""
    needed = {id(var) for var in jaxpr.outvars}
    found = []
    for eqn in reversed(jaxpr.eqns):
        if any(id(var) in needed for var in eqn.outvars):
            found.append(eqn)
            needed.update(map(id, eqn.invars))
    return reversed(found)


def _seconds(name: str, params: Any, ins: Sequence[Shape], outs: Sequence[Shape]) -> float:
    moved = sum([int(np.prod(s.shape)) * s.dtype.itemsize for s in (*ins, *outs)])
    products = 0
    if name == "dot_general":
        inner = int(np.prod([ins[0].shape[d] for d in params["dimension_numbers"][0][0]]))
        products = inner * int(np.prod(outs[0].shape))
    return _EACH + _BYTE * moved + _PRODUCT * products


# Loops and branches.


def _scan(eqn: Any, outside: Evaluator) -> Function:
    params = eqn.params
    body, length = outside.inner(params["jaxpr"]), params["length"]
    first, kept = scan_counts(params)
    given = first + kept
    stacked = [_shape(var) for var in eqn.outvars[kept:]]
    order = range(length)[::-1] if params["reverse"] else range(length)

    def scan(*values: Any) -> list[Any]:
        consts, carry, rows = values[:first], list(values[first:given]), values[given:]
        found = [np.empty(shape, dtype) for shape, dtype in stacked]
        for k in order:
            results = body.run([*consts, *carry, *[row[k] for row in rows]])
            carry = results[:kept]
            for each, result in zip(found, results[kept:], strict=True):
                each[k] = result
        return carry + found

    return scan


def _while(eqn: Any, outside: Evaluator) -> Function:
    params = eqn.params
    condition, body = outside.inner(params["cond_jaxpr"]), outside.inner(params["body_jaxpr"])
    tested, begin = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

    def loop(*values: Any) -> list[Any]:
        of_test, of_body, carry = values[:tested], values[tested:begin], list(values[begin:])
        while condition.run([*of_test, *carry])[0]:
            carry = body.run([*of_body, *carry])
        return carry

    return loop


def _cond(eqn: Any, outside: Evaluator) -> Function:
    branches = [outside.inner(branch) for branch in eqn.params["branches"]]
    last = len(branches) - 1
    return lambda which, *values: branches[min(max(int(which), 0), last)].run(values)


_LOOPS: dict[str, Callable[[Any, Evaluator], Function]] = {"cond": _cond, "scan": _scan, "while": _while}
