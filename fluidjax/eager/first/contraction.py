"""Products that are added to something, with one rounding for both, as processors do it.

XLA's kernels multiply and add in one instruction wherever they can. What an optimizer makes of a small gradient shows
such a difference in the first digits, so NumPy rounds once here too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidjax.eager.first import borrowed
from fluidjax.eager.first.notation import Shape, Step, Unknown

_SUMS = frozenset({"add", "add_any", "sub"})
_SPREAD = frozenset({"broadcast_in_dim", "reshape", "squeeze"})  # of one number: done element by element in a kernel


def contracted(steps: Sequence[Step]) -> list[Step]:
    """The same steps, with sums of products as one call."""
    makers = {step.writes: step for step in steps}
    uses = Counter([read for step in steps for read in step.reads])

    def product(slot: int) -> tuple[int, int] | None:
        """The factors of a product that nothing else reads."""
        step = makers.get(slot)
        if step is None or uses[slot] > 1:
            return None
        if step.name in _SPREAD and _single(makers.get(step.reads[0])):
            return product(step.reads[0])
        if step.name == "mul":
            return step.reads[0], step.reads[1]
        return (step.reads[0], step.reads[0]) if step.name == "square" else None

    def radicand(slot: int) -> tuple[int, Shape] | None:
        """Where the number is whose root this is, and its shape."""
        step = makers.get(slot)
        if step is not None and step.name in _SPREAD and _single(makers.get(step.reads[0])):
            return radicand(step.reads[0])
        return (step.reads[0], step.result) if step is not None and step.name == "sqrt" else None

    found = [_contracted(_by_root(step, makers, radicand), product) for step in steps]
    return _needed(found, steps)


def _single(step: Step | None) -> bool:
    return step is not None and int(np.prod(step.result.shape)) == 1


def _by_root(step: Step, makers: Mapping[Any, Step], radicand: Any) -> Step:
    """A division by a root as a product: XLA has a function for one over a root."""
    if step.name != "div" or step.result.dtype.kind != "f":
        return step
    if (maker := makers.get(step.reads[1])) is not None and maker.name == "div":
        raise Unknown("a division by a quotient, which XLA writes in another way")
    found = radicand(step.reads[1])
    if found is None:
        return step
    inverse = borrowed.each("rsqrt", found[1].shape, {"accuracy": None})
    return step._replace(function=lambda a, b: a * inverse(b), reads=(step.reads[0], found[0]))


def _contracted(step: Step, product: Any) -> Step:
    if step.name not in _SUMS or step.result.dtype.kind != "f":
        return step
    left, right = step.reads
    fused = _FUSED[step.result.dtype.itemsize]
    if (factors := product(left)) is not None:
        sign = -1 if step.name == "sub" else 1
        return step._replace(function=lambda a, b, c: fused(a, b, sign * c), reads=(*factors, right))
    if (factors := product(right)) is not None:
        sign = -1 if step.name == "sub" else 1
        return step._replace(function=lambda a, b, c: fused(sign * a, b, c), reads=(*factors, left))
    return step


def _needed(steps: Sequence[Step], before: Sequence[Step]) -> list[Step]:
    """Without the products that are part of a sum now."""
    gone = {r for step in before for r in step.reads} - {r for step in steps for r in step.reads}
    return [step for step in steps if step.writes not in gone]


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
