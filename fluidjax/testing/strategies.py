"""Hypothesis strategies for tensors and for ops with their inputs and attributes.

    from hypothesis import given
    from fluidjax.testing import check_gradient, strategies

    @given(strategies.ops("reduce_sum"))
    def test_reduce_sum(drawn):
        check_gradient(drawn.case, drawn.rng())

Hypothesis chooses shapes, attributes and a seed; the numbers come from the case's own generators, so that they stay
inside the op's domain and away from kinks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fluidjax.testing.attributes import ATTRIBUTED
from fluidjax.testing.case import Case, away, case, distinct, normal, positive
from fluidjax.testing.table import cases_of, table

FLOATS = ("float32", "float64")
DTYPES = (*FLOATS, "int32", "int64", "bool")

_UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "relu": (lambda *s: away((0,), *s), lambda X: np.maximum(X, 0)),
    "tanh": (normal, np.tanh),
    "sigmoid": (normal, lambda X: 1 / (1 + np.exp(-X))),
    "exp": (normal, np.exp),
    "log": (positive, np.log),
    "sqrt": (positive, np.sqrt),
    "square": (normal, np.square),
    "abs": (lambda *s: away((0,), *s), np.abs),
}
_BINARY = {
    "elementwise_add": (normal, np.add),
    "elementwise_sub": (normal, np.subtract),
    "elementwise_mul": (normal, np.multiply),
    "elementwise_div": (positive, np.divide),
    "elementwise_pow": (positive, np.power),
}
_REDUCING: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "reduce_sum": (normal, np.sum),
    "reduce_mean": (normal, np.mean),
    "reduce_max": (distinct, np.max),
    "reduce_min": (distinct, np.min),
    "reduce_prod": (positive, np.prod),
}


@dataclass(frozen=True)
class Drawn:
    """A case and the seed of its numbers."""

    case: Case
    seed: int

    def rng(self) -> np.random.Generator:
        """A generator that starts over from ``seed`` at each call."""
        return np.random.default_rng(self.seed)


def _drawn(made: st.SearchStrategy[Case]) -> st.SearchStrategy[Drawn]:
    return st.builds(Drawn, made, st.integers(0, 2**32 - 1))


def shapes(min_dims: int = 1, max_dims: int = 4, min_side: int = 0, max_side: int = 4) -> st.SearchStrategy[Any]:
    """Shapes, sides of 0 and 1 included; Fluid has no scalars, so there is at least one dim."""
    return st.lists(st.integers(min_side, max_side), min_size=min_dims, max_size=max_dims).map(tuple)


@st.composite
def tensors(draw: Any, shape: Any = None, dtype: Any = None) -> np.ndarray:
    """Arrays of one of Fluid's element types with unremarkable numbers; ``shape`` and ``dtype`` may be strategies."""
    dims = draw(shapes() if shape is None else shape) if not isinstance(shape, tuple) else shape
    kind = dtype if isinstance(dtype, str) else draw(st.sampled_from(DTYPES) if dtype is None else dtype)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if kind == "bool":
        return rng.random(dims) < 0.5
    if np.dtype(kind).kind == "i":
        return rng.integers(-9, 10, dims).astype(kind)
    return rng.standard_normal(dims).astype(kind)


@st.composite
def broadcasts(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """(shape of X, shape of Y, axis) that Fluid's elementwise ops accept: Y's dims are X's from the axis on, or 1."""
    x = draw(shapes(1, 4))
    start = draw(st.integers(0, len(x) - 1))
    stop = draw(st.integers(start + 1, len(x)))
    y = tuple(1 if draw(st.booleans()) and draw(st.booleans()) else n for n in x[start:stop])
    trailing = stop == len(x)
    axis = -1 if trailing and draw(st.booleans()) else start
    return x, y, axis


def _spread(y: np.ndarray, rank: int, axis: int) -> np.ndarray:
    axis = rank - y.ndim if axis == -1 else axis
    return y.reshape((1,) * axis + y.shape + (1,) * (rank - axis - y.ndim))


@st.composite
def _unary_case(draw: Any, op: str) -> Case:
    generator, function = _UNARY[op]
    return case(op, generator(*draw(shapes())), reference=lambda X: function(X))


@st.composite
def _binary_case(draw: Any, op: str) -> Case:
    generator, function = _BINARY[op]
    x, y, axis = draw(broadcasts())
    inputs = {"X": generator(*x), "Y": generator(*y)}
    return case(op, inputs, {"axis": axis}, reference=lambda X, Y, axis: function(X, _spread(Y, X.ndim, axis)))


@st.composite
def _reducing_case(draw: Any, op: str) -> Case:
    generator, function = _REDUCING[op]
    shape = draw(shapes(1, 4, min_side=1))
    dims = draw(st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, unique_by=lambda d: d % len(shape)))
    attrs = {"dim": dims, "keep_dim": draw(st.booleans()), "reduce_all": draw(st.booleans())}

    def reference(X: np.ndarray, dim: list[int], keep_dim: bool, reduce_all: bool) -> np.ndarray:
        axes = tuple(range(X.ndim)) if reduce_all else tuple(d % X.ndim for d in dim)
        out = function(X, axis=axes, keepdims=keep_dim)
        return out.reshape(1) if out.ndim == 0 else out

    return case(op, generator(*shape), attrs, reference=reference)


@st.composite
def _reshape_case(draw: Any, op: str) -> Case:
    shape = draw(shapes(1, 4, min_side=1))
    target = list(draw(st.permutations(shape)))
    if draw(st.booleans()):
        target.insert(draw(st.integers(0, len(target))), 1)
    wanted = list(target)
    if draw(st.booleans()):
        wanted[draw(st.integers(0, len(wanted) - 1))] = -1
    return case(op, normal(*shape), {"shape": wanted}, reference=lambda X, shape: X.reshape(target))


@st.composite
def _transpose_case(draw: Any, op: str) -> Case:
    shape = draw(shapes())
    axis = list(draw(st.permutations(range(len(shape)))))
    return case(op, normal(*shape), {"axis": axis}, reference=lambda X, axis: X.transpose(axis))


@st.composite
def _concat_case(draw: Any, op: str) -> Case:
    shape = list(draw(shapes()))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    sides = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    parts = [normal(*(side if i == axis % len(shape) else n for i, n in enumerate(shape))) for side in sides]
    return case(op, {"X": parts}, {"axis": axis}, reference=lambda X, axis: np.concatenate(X, axis))


@st.composite
def _slice_case(draw: Any, op: str) -> Case:
    shape = draw(shapes(min_side=1))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    starts = [draw(st.integers(-shape[a], shape[a] - 1)) for a in axes]
    ends = [draw(st.integers(s % shape[a] + 1, shape[a] + 3)) for a, s in zip(axes, starts, strict=True)]
    attrs = {"axes": axes, "starts": starts, "ends": ends}

    def reference(Input: np.ndarray, axes: list[int], starts: list[int], ends: list[int]) -> np.ndarray:
        index = [slice(None)] * Input.ndim
        for a, s, e in zip(axes, starts, ends, strict=True):
            index[a] = slice(s, e)
        return Input[tuple(index)]

    return case(op, {"Input": normal(*shape)}, attrs, reference=reference)


@st.composite
def _matmul_case(draw: Any, op: str) -> Case:
    m, k, n = (draw(st.integers(1, 4)) for _ in range(3))
    batch = draw(shapes(0, 2, min_side=1, max_side=3))
    tx, ty = draw(st.booleans()), draw(st.booleans())
    x = (*batch, *((k, m) if tx else (m, k)))
    y = (*(batch if draw(st.booleans()) else ()), *((n, k) if ty else (k, n)))
    attrs = {"transpose_X": tx, "transpose_Y": ty, "alpha": draw(st.sampled_from([1.0, 0.5, -2.0]))}

    def reference(X: np.ndarray, Y: np.ndarray, transpose_X: bool, transpose_Y: bool, alpha: float) -> np.ndarray:
        left = np.swapaxes(X, -1, -2) if transpose_X else X
        return alpha * left @ (np.swapaxes(Y, -1, -2) if transpose_Y else Y)

    return case(op, {"X": normal(*x), "Y": normal(*y)}, attrs, reference=reference)


_SHAPED: dict[str, Callable[..., st.SearchStrategy[Case]]] = {
    **dict.fromkeys(_UNARY, _unary_case),
    **dict.fromkeys(_BINARY, _binary_case),
    **dict.fromkeys(_REDUCING, _reducing_case),
    "reshape2": _reshape_case,
    "transpose2": _transpose_case,
    "concat": _concat_case,
    "slice": _slice_case,
    "matmul": _matmul_case,
}


def shaped_ops() -> list[str]:
    """The ops whose shapes and attributes hypothesis chooses; of the others it chooses among the table's cases."""
    return sorted(_SHAPED)


def attributed_ops() -> list[str]:
    """The ops whose attributes hypothesis draws, off their defaults."""
    return sorted(ATTRIBUTED)


def attributed(op: str) -> st.SearchStrategy[Drawn]:
    """A case of ``op`` with drawn attributes, and a seed for its numbers."""
    return _drawn(ATTRIBUTED[op](op))


def ops(op: str | None = None, *, among: Sequence[str] | None = None) -> st.SearchStrategy[Drawn]:
    """A case of ``op`` (or of one of ``among``, or of any op of the table) and a seed for its numbers."""
    if op is None:
        return st.sampled_from(sorted({c.op for c in table()} if among is None else among)).flatmap(ops)
    listed = st.sampled_from(cases_of(op)) if cases_of(op) else st.nothing()
    return _drawn(st.one_of(_SHAPED[op](op), listed) if op in _SHAPED else listed)
