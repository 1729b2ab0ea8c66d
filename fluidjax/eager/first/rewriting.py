"""Several primitives as one, where XLA's kernels compute them so that they round differently.

XLA multiplies and adds in one instruction wherever it can, and writes divisions in other ways. What an optimizer makes
of a small gradient shows such a difference in the first digits, so NumPy rounds in the same places here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fluidjax.eager.first import borrowed
from fluidjax.eager.first.notation import Shape, Step, Unknown
from fluidjax.eager.first.sums import PRIMITIVES, is_short

_SPREAD = frozenset({"broadcast_in_dim", "reshape", "squeeze"})
_ROWS = 64  # numbers that are added one by one


class Rewriting:
    """The steps of an evaluator, rewritten.

    Args:
        steps: its steps.
        gives: the positions of its results.

    Attributes:
        steps: the new ones. Raises Unknown where XLA writes something in a way that is not known here.
    """

    def __init__(self, steps: Sequence[Step], gives: Sequence[int]) -> None:
        self._makers = {step.writes: step for step in steps}
        self._uses = Counter([*[read for step in steps for read in step.reads], *gives])
        results = [step.reads[0] for step in steps if step.name == "reshape" and step.writes in gives]
        self._within = self._uses - Counter([*gives, *results])
        found = [_RULES[step.name](self, step) if step.name in _RULES else step for step in steps]
        before, now = [{r for step in each for r in step.reads} for each in (steps, found)]
        gone = before - now - {*gives}
        self.steps = [step for step in found if step.writes not in gone]

    def sum(self, step: Step) -> Step:
        """A sum of a product: rounded once."""
        if _shape(step).dtype.kind != "f":
            return step
        fused, (left, right) = _FUSED[_shape(step).dtype.itemsize], step.reads
        sign = -1 if step.name == "sub" else 1
        if (factors := self._part(left, step)) is not None:
            return step._replace(function=lambda a, b, c: fused(a, np.reciprocal(b), sign * c), reads=(*factors, right))
        if (factors := self._part(right, step)) is not None:
            return step._replace(function=lambda a, b, c: fused(sign * a, np.reciprocal(b), c), reads=(*factors, left))
        if (factors := self._product(left)) is not None:
            return step._replace(function=lambda a, b, c: fused(a, b, sign * c), reads=(*factors, right))
        if (factors := self._product(right)) is not None:
            return step._replace(function=lambda a, b, c: fused(sign * a, b, c), reads=(*factors, left))
        return step

    def total(self, step: Step) -> Step:
        """A reduction of a product, in which each product and sum is rounded once, unless it is added up in parts."""
        step = self._before_reshape(step)
        factors = self._product(step.reads[0])
        if factors is None or _shape(step).dtype.kind != "f" or not is_short(step.eqn):
            return step
        shape, axes = step.eqn.ins[0].shape, sorted(step.eqn.params["axes"])
        count, out = int(np.prod([shape[d] for d in axes])), _shape(step)
        if count > _ROWS:
            raise Unknown("a long sum of products")
        order = [*axes, *[d for d in range(len(shape)) if d not in axes]]
        fused = _FUSED[out.dtype.itemsize]

        def add(a: Any, b: Any) -> Any:
            found = np.zeros(out.shape, out.dtype)
            rows = [np.broadcast_to(x, shape).transpose(order).reshape(count, *out.shape) for x in (a, b)]
            for x, y in zip(*rows, strict=True):
                found = fused(x, y, found)
            return found

        return step._replace(function=add, reads=factors)

    def quotient(self, step: Step) -> Step:
        """A division by a root, or by what is broadcast: XLA multiplies by the inverse."""
        divisor = self._makers.get(step.reads[1])
        if divisor is None or _shape(step).dtype.kind != "f":
            return step
        if divisor.name == "div":
            raise Unknown("a division by a quotient")
        root = self._behind(step.reads[1])
        if root is not None and root.name == "sqrt":
            inverse = borrowed.each("rsqrt", _shape(root).shape, {"accuracy": None})
            return step._replace(function=lambda a, b: a * inverse(b), reads=(step.reads[0], root.reads[0]))
        spread = divisor.eqn.ins[0] if divisor.name == "broadcast_in_dim" else step.eqn.ins[1]
        if _size(spread) < _size(_shape(step)):
            return step._replace(function=lambda a, b: a * np.reciprocal(b))
        return step

    def dot(self, step: Step) -> Step:
        """A product of transposed matrices: XLA does not move their numbers, and adds up in another order then."""
        makers = [self._makers.get(read) for read in step.reads]
        orders = [m.eqn.params["permutation"] if m is not None and m.name == "transpose" else None for m in makers]
        if orders == [None, None]:
            return step
        reads = [r if order is None else m.reads[0] for r, m, order in zip(step.reads, makers, orders, strict=True)]  # type: ignore[union-attr]
        return step._replace(function=borrowed.called(step.name, step.eqn, orders), reads=tuple(reads))

    def _before_reshape(self, step: Step) -> Step:
        """A sum over dimensions that a reshape has merged or split: XLA adds up what it was given, in that order."""
        reshape = self._makers.get(step.reads[0])
        if reshape is None or reshape.name != "reshape" or _shape(step).dtype.kind != "f":
            return step
        (given, _), (shape, _) = reshape.eqn.ins[0], step.eqn.ins[0]
        if 0 in shape:  # there is no order in which to add up nothing
            return step
        kept = [_same(shape, d, given) for d in range(len(shape)) if d not in step.eqn.params["axes"]]
        if None in kept:
            return step
        axes = tuple([d for d in range(len(given)) if d not in kept])
        eqn = step.eqn._replace(ins=reshape.eqn.ins, params={**step.eqn.params, "axes": axes})
        total, out = PRIMITIVES[step.name](eqn), _shape(step).shape
        assert total is not None  # as for the sum itself
        # Two dimensions of one number that are kept may be the same one of what the reshape was given.
        return step._replace(eqn=eqn, function=lambda x: total(x).reshape(out), reads=reshape.reads)

    def _product(self, slot: int) -> tuple[int, int] | None:
        """The factors of a product that nothing else reads."""
        step = self._makers.get(slot)
        if step is None or self._uses[slot] > 1:
            return None
        if step.name in _SPREAD and _size(step.eqn.ins[0]) == 1:
            return self._product(step.reads[0])
        if step.name == "mul":
            return step.reads[0], step.reads[1]
        return (step.reads[0], step.reads[0]) if step.name == "square" else None

    def _part(self, slot: int, of: Step) -> tuple[int, int] | None:
        """The numbers and the constant of a quotient of a sum's size that nothing else reads but who wants results.

        XLA multiplies by the inverse, for results once more: it takes no more memory than reading them. What is smaller
        than the sum is not multiplied within it.
        """
        step = self._makers.get(slot)
        if step is None or self._within[slot] > 1 or step.name != "div" or not step.eqn.literals[1]:
            return None
        return (step.reads[0], step.reads[1]) if _size(_shape(step)) == _size(_shape(of)) else None

    def _behind(self, slot: int) -> Step | None:
        """What makes a value, or the single number that it consists of."""
        step = self._makers.get(slot)
        if step is not None and step.name in _SPREAD and _size(step.eqn.ins[0]) == 1:
            return self._behind(step.reads[0])
        return step


def _shape(step: Step) -> Shape:
    return step.eqn.outs[0]


def _same(shape: Sequence[int], d: int, other: Sequence[int]) -> int | None:
    """The dimension of `other` that a reshape to `shape` makes its d-th, unchanged."""
    before = math.prod(shape[:d])
    found = (k for k, n in enumerate(other) if n == shape[d] and math.prod(other[:k]) == before)
    return next(found, None)


def _size(shape: Shape) -> int:
    return int(np.prod(shape.shape))


def _fused_single(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once: in double precision the product is exact."""
    return (np.multiply(a, b, dtype=np.float64) + c).astype(np.float32)


_SPLIT = float(2**27 + 1)


def _fused_double(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once, from the sum, the product, and what each of them lost to rounding."""
    p = a * b
    total = p + c
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    lost = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    back = total - p
    exact = total + (((p - (total - back)) + (c - back)) + lost)
    return np.where(np.isfinite(exact), exact, total)


def _halves(x: Any) -> tuple[Any, Any]:
    """The upper and the lower half of a number's bits."""
    far = x * _SPLIT
    high = far - (far - x)
    return high, x - high


_FUSED = {4: _fused_single, 8: _fused_double}
_RULES: dict[str, Callable[[Rewriting, Step], Step]] = {
    "add": Rewriting.sum, "add_any": Rewriting.sum, "div": Rewriting.quotient, "dot_general": Rewriting.dot,
    "reduce_sum": Rewriting.total, "sub": Rewriting.sum,
}  # fmt: skip
