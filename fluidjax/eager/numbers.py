"""Numbers that change from step to step become operands: as attributes, each would require a kernel of its own.

An attribute is part of its kernel, and of every block that contains the kernel. When the third different number occurs
at one position of a recorded sequence (an annealed factor, a seed, a constant), or a third slice of one size has
another start, the number becomes an input. Fluid's own tensor slot is used if the op has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fluidjax.eager.backward.plans import Plan, Step
from fluidjax.eager.kernels import Kernel, kernel_of, replaced
from fluidjax.eager.recorded.moving import moves
from fluidjax.eager.recorded.sizes import known
from fluidjax.eager.sequences.points import CLOSED, Point
from fluidjax.eager.values import Spec, Value
from fluidjax.eager.variables.varbase import VarBase
from lowering.errors import NeedsSizes
from lowering.ops.math.arithmetic import in_type
from lowering.values import Axis, Wide, data_of

# Attributes that are numbers, and the slots that replace them.
_SLOTS = {
    "pow": {"factor": "FactorTensor"},
    "clip": {"min": "Min", "max": "Max"},
    "dropout": {"seed": "Seed"},
}

_starts: dict[Any, set[Any]] = {}  # sliced input and size -> the starts seen


def opened(
    kernel: Kernel, ins: Sequence[VarBase], point: Point, apart: int = 0
) -> tuple[Kernel, Sequence[VarBase]] | None:
    """A kernel that takes the numbers of `kernel` as an operand, with its inputs; None to leave it unchanged.

    Args:
        point, apart: see ``moves``.
    """
    if kernel.type == "slice":
        return None if _is_size(ins[0], point) else _opened_slice(kernel, ins)
    if len(kernel.ins) != 1 or not kernel.attrs.get("fix_seed", True) or not moves(kernel, point, apart):
        return None
    replaced(kernel)
    if kernel.type == "scale":
        return _affine(kernel), [*ins, _operand([kernel.attrs["scale"], kernel.attrs["bias"]], np.float64)]
    return _with_slots(kernel, ins) if kernel.type in _SLOTS else None


def _operand(numbers: Sequence[Any], dtype: Any) -> VarBase:
    return VarBase._of("numbers", Value(np.array(numbers, dtype)), True)


def _with_slots(kernel: Kernel, ins: Sequence[VarBase]) -> tuple[Kernel, Sequence[VarBase]]:
    slots = _SLOTS[kernel.type]
    attrs = {**kernel.attrs, **{name: 0 for name in slots}}
    if kernel.type == "dropout":
        attrs["fix_seed"] = False
    dtype = np.int32 if kernel.type == "dropout" else np.float64
    operands = [_operand([kernel.attrs[name]], dtype) for name in slots]
    return kernel_of(kernel.type, attrs, (*kernel.ins, *slots.values()), kernel.outs), [*ins, *operands]


class Affine(Kernel):
    """An op that is affine in its input, with its numbers as the second input.

    Args:
        kernel: the op with any numbers.
        way: "out" for the op itself (x, numbers); "back" for its gradient and "along" for that one's gradient, which
            take (x, numbers, gradient) and do not look at x.
    """

    def __init__(self, kernel: Kernel, way: str = "out") -> None:
        self._begin_as(kernel)
        self.kernel, self.way, self.backward = kernel, way, way != "out"
        self.given, self.movable = None, False
        self.ins = ("X", "Numbers") if way == "out" else ("X", "Numbers", "Gradient")
        self.plans = _Plans(self)

    def of(self, x: Any, numbers: Any) -> Any:
        """The op."""
        raise NotImplementedError

    def with_numbers(self, numbers: np.ndarray) -> dict[str, Any]:
        """The op's attributes."""
        raise NotImplementedError

    def attributes(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """See Kernel."""
        return self.with_numbers(np.asarray(inputs[1].numpy()))

    def _with_key(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        x, numbers, *gradient = flat
        if self.way == "out":
            return (self.of(x, numbers),)
        zeros = jnp.zeros(x.shape, x.dtype)
        if self.way == "back":
            return jax.vjp(lambda x: self.of(x, numbers), zeros)[1](*gradient)
        return (jax.jvp(lambda x: self.of(x, numbers), (zeros,), tuple(gradient))[1],)

    def in_room(self, flat: Sequence[Any]) -> tuple[Any, ...] | None:
        """See Kernel. Of gradients the room is empty, so it stays empty here."""
        x, numbers, *gradient = flat
        (found,) = self._with_key([data_of(value) for value in flat])
        axes = self.axes(x) if self.way == "out" else x.axes if self.way == "back" else None
        if not isinstance(x, Wide) or isinstance(numbers, Wide) or axes is None:
            raise NeedsSizes(f"op {self.type} with operands of other sizes")
        kept = [(axis, count) for axis, count in zip(x.axes, x.counts, strict=True) if axis in axes]
        return (Wide(found, tuple([n for _, n in kept]), tuple([axis for axis, _ in kept])) if kept else found,)

    def axes(self, x: Wide) -> tuple[Axis, ...] | None:
        """The axes with room that the op keeps; None if it moves them."""
        return x.axes


class _Plans(dict[Any, Plan]):
    """The gradient of an affine op, whichever inputs want one: only one of them can."""

    def __init__(self, kernel: Affine) -> None:
        self._kernel = kernel

    def __missing__(self, key: Any) -> Plan:
        kernel = self._kernel
        at = 0 if kernel.way == "out" else 2
        if not key[0][at]:
            return Plan((), frozenset(), frozenset())
        way = "along" if kernel.way == "back" else "back"
        step = Step(kernel.__class__(kernel.kernel, way), (("i", 0), ("i", 1), ("g", 0)), (("i", at),))
        found = self[key] = Plan((step,), frozenset(), frozenset([0]))
        return found


class Scale(Affine):
    """A ``scale`` op whose numbers are (scale, bias)."""

    def of(self, x: Any, numbers: Any) -> Any:
        """See Affine."""
        factor, bias = in_type(numbers[0], x.dtype), in_type(numbers[1], x.dtype)
        return x * factor + bias if self.attrs["bias_after_scale"] else (x + bias) * factor

    def with_numbers(self, numbers: np.ndarray) -> dict[str, Any]:
        """See Affine."""
        return {**self.attrs, "scale": float(numbers[0]), "bias": float(numbers[1])}


class Slice(Affine):
    """A ``slice`` op whose numbers are the starts."""

    def of(self, x: Any, numbers: Any) -> Any:
        """See Affine."""
        begin, size = [jnp.int32(0)] * x.ndim, list(x.shape)
        for axis, start, length in zip(self.attrs["axes"], numbers, self._sizes(), strict=True):
            begin[axis], size[axis] = start, length
        part = jax.lax.dynamic_slice(x, begin, size)
        kept = [n for axis, n in enumerate(part.shape) if axis not in self.attrs["decrease_axis"]]
        return part.reshape(kept or [1])

    def axes(self, x: Wide) -> tuple[Axis, ...] | None:
        """See Affine."""
        kept = tuple([axis for axis in x.axes if axis.dim not in self.attrs["axes"]])
        return None if kept and self.attrs["decrease_axis"] else kept

    def _sizes(self) -> list[int]:
        return [end - start for start, end in zip(self.attrs["starts"], self.attrs["ends"], strict=True)]

    def with_numbers(self, numbers: np.ndarray) -> dict[str, Any]:
        """See Affine."""
        starts = numbers.tolist()
        return {**self.attrs, "starts": starts, "ends": [s + n for s, n in zip(starts, self._sizes(), strict=True)]}


_affines: dict[Any, Affine] = {}


def _affine(kernel: Kernel) -> Affine:
    key = kernel.outs, kernel.attrs["bias_after_scale"]
    if key not in _affines:
        _affines[key] = Scale(kernel)
    return _affines[key]


def _is_size(var: VarBase, point: Point) -> bool:
    """Whether a variable is known from shapes: with the place as an operand, what is cut from it would not be."""
    value = var._value
    return value is not None and value.array is None and known(point, value) is not None


def _opened_slice(kernel: Kernel, ins: Sequence[VarBase]) -> tuple[Kernel, Sequence[VarBase]] | None:
    spec = ins[0]._spec
    found = kernel.opened.get(spec)
    if found is None and _can_move(kernel, spec):
        axes = [axis % len(spec.shape) for axis in kernel.attrs["axes"]]
        bounds = zip(axes, kernel.attrs["starts"], kernel.attrs["ends"], strict=True)
        spans = [slice(start, end).indices(spec.shape[axis])[:2] for axis, start, end in bounds]
        starts, sizes = [a for a, _ in spans], [b - a for a, b in spans]
        window = _window(kernel, axes, starts, sizes)
        if window is not None:
            found = kernel.opened[spec] = window, _operand(starts, np.int32)
    return None if found is None else (found[0], [ins[0], found[1]])


def _window(kernel: Kernel, axes: list[int], starts: list[int], sizes: list[int]) -> Affine | None:
    """The op that cuts a part of this size anywhere, where parts of this size were cut at several places."""
    dropped = list(kernel.attrs["decrease_axis"])
    family = "slice", tuple(axes), tuple(sizes), tuple(dropped), kernel.outs
    seen = _starts.setdefault(family, set())
    seen.add(tuple(starts))
    if len(seen) <= CLOSED or min(sizes) <= 0:
        return None
    if family not in _affines:
        attrs = {"axes": axes, "starts": [0] * len(axes), "ends": sizes, "decrease_axis": dropped}
        _affines[family] = Slice(kernel_of("slice", attrs, kernel.ins, kernel.outs))
    return _affines[family]


def _can_move(kernel: Kernel, spec: Spec) -> bool:
    """Whether it cuts a plain tensor at bounds that are attributes."""
    if kernel.ins != ("Input",) or not spec.plain or not spec.shape:
        return False
    count = len(kernel.attrs["axes"])
    return len(kernel.attrs["starts"]) == len(kernel.attrs["ends"]) == count > 0
