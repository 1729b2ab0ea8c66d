"""Requirements of ops on their numbers (ids within a table, non-zero integer divisors), in eager mode.

Arrays on the host are checked before the op is recorded, so the error is raised at its line. Pending values are checked
by a small kernel that runs with them; the error is then raised at the line that reads a value, and names the op's line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.eager.kernels import Kernel
from fluidjax.eager.sequences.packs import taken
from fluidjax.eager.values import Spec, Value
from lowering.engine.checks import Demand, bad_places, demands, flag_of, merged, source_of
from lowering.program import FRAMEWORK_FOLDERS
from lowering.wide.sizes import sized


class DemandKernel(Kernel):
    """A kernel from another kernel's inputs to int64 [2]: (whether a demand is broken, the bad number)."""

    def __init__(self, kernel: Kernel) -> None:
        self._begin_as(kernel)
        self.type = f"{kernel.type}_demands"
        self.demands, self.backward, self.checked = None, True, False  # checks are not checked themselves
        self.takes_key, self.own_key, self.on_host, self.width = False, None, False, 1
        assert self.definition.demands is not None
        slots = {slot.name for slot in self.definition.demands.inputs if slot.wants != "meta"}
        names = [name for slot, names in self.view.inputs.items() for name in names if slot in slots]
        self.reads = [int(name[1:]) for name in names]  # the inputs whose numbers are read

    def _found(self, flat: Sequence[Any]) -> list[tuple[Demand, Any]]:
        check = self.definition.demands
        assert check is not None
        values = sized(check, self._values(flat))
        return [(d, source_of(self.definition, d, values)) for d in demands(check, values, self.attrs)]

    def _with_key(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        flags = [flag_of(demand, source) for demand, source in self._found(flat)]
        if not flags:
            return ()
        total = jnp.asarray(flags[0])
        for flag in flags[1:]:
            total = merged(total, flag)
        return (total,)

    def in_room(self, flat: Sequence[Any]) -> tuple[Any, ...] | None:
        """See Kernel."""
        return self._with_key(flat)

    def refuse(self, ins: Sequence[Value]) -> tuple[tuple[int, int], ...] | None:
        """Raise EnforceNotMet if values on the host break a demand.

        If the only demands on inputs of these shapes are that some are in [0, high), returns (the input, high) for
        each; otherwise None. Where there is no other bound, it is the one of the dtype.
        """
        flat = [v.array if k in self.reads else v.spec.aval for k, v in enumerate(ins)]
        found = self._found(flat)
        for demand, source in found:
            if demand.plainly_holds():
                continue
            bad = bad_places(demand, source)
            if bad.any():
                raise broken(self, int(np.broadcast_to(demand.values, bad.shape)[bad][0]), demand.expected(), "")
        return _limits(flat, [demand for demand, _ in found])

    def reads_host(self, ins: Sequence[Value]) -> bool:
        """Whether all numbers read are NumPy arrays."""
        return all(type(ins[k].array) is np.ndarray for k in self.reads)


class Faults:
    """Checks that run with the pending ops: which flags they give, of which kernel, and for which line of the user."""

    def __init__(self) -> None:
        self.flags: list[tuple[Any, DemandKernel, str]] = []

    def add(self, flag: Any, check: DemandKernel) -> None:
        """A check is pending; its flag is a value."""
        self.flags.append((flag, check, user_line()))

    def report(self) -> None:
        """Raise the error of the first op, among those that ran, with a number it cannot take."""
        flags, self.flags = self.flags, []
        for flag, check, line in flags:
            is_broken, number = np.asarray(taken(flag.array))
            if is_broken:
                raise broken(check, int(number), "ids, labels or divisors within their range", line)


def _limits(flat: Sequence[Any], found: Sequence[Demand]) -> tuple[tuple[int, int], ...] | None:
    places = {id(value): k for k, value in enumerate(flat)}
    limits = []
    for demand in found:
        at, high = places.get(id(demand.values)), demand.high
        if at is None or demand.nonzero or demand.low != 0:
            return None
        if high is None and np.dtype(demand.values.dtype).kind in "iu":
            high = int(np.iinfo(demand.values.dtype).max) + 1
        if type(high) is not int:
            return None
        limits.append((at, high))
    return tuple(limits)


def within(limits: tuple[tuple[int, int], ...] | None, variables: Sequence[Any]) -> bool:
    """Whether inputs are on the host and within limits; values outside may still be admissible."""
    if limits is None:
        return False
    for k, high in limits:
        array = variables[k]._value.array
        if array.__class__ is not np.ndarray or not is_below(array, high):
            return False
    return True


def is_below(array: np.ndarray, high: int) -> bool:
    """Whether all integers of a nonempty array are in [0, high)."""
    kind = array.dtype.kind
    if array.size <= _FEW and (kind == "i" or kind == "u"):
        numbers = array.ravel().tolist()
        return bool(numbers) and min(numbers) >= 0 and max(numbers) < high
    if not array.size:
        return False
    if kind == "i":  # negative numbers become large ones
        array = array.view(_UNSIGNED[array.dtype.itemsize])
    return bool(array.item(array.argmax()) < high)  # a third of what a reduction takes


_FEW = 32  # numbers that Python compares faster than NumPy begins to
_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def demand_of(kernel: Kernel, specs: tuple[Spec, ...]) -> DemandKernel | None:
    """The kernel that checks another one's inputs; None if it demands nothing."""
    if kernel.definition.demands is None:
        return None
    if kernel.demands is None:
        kernel.demands = DemandKernel(kernel)
    found = kernel.demands.known.get(specs, False)
    if found is False:
        found = kernel.demands.infer(specs)
    return kernel.demands if found else None


def broken(kernel: Kernel, value: int, expected: str, line: str) -> EnforceNotMet:
    """The error for a number that an op cannot take."""
    where = f" (at {line})" if line else ""
    return EnforceNotMet(
        explain(
            f"op {kernel.definition.type}{where} cannot take the value {value}",
            expected,
            str(value),
            "correct the ids or labels that it was given (FLAGS_check_values=0 turns this check off)",
        )
    )


def user_line() -> str:
    """``file:line`` of the innermost frame outside this package."""
    frame: Any = sys._getframe(1)
    while frame is not None and any(folder in frame.f_code.co_filename for folder in FRAMEWORK_FOLDERS):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
