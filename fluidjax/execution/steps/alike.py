"""Values of a jaxpr that are made alike from parts of the same arrays, as one array with a row for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowering.extend import function_of, is_literal

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

# What computes an element of one row as it would compute it alone.
_ALIKE = frozenset(
    "abs add and broadcast_in_dim ceil clamp convert_element_type cos div eq erf exp expm1 floor ge gt integer_pow"
    " is_finite le log log1p logistic lt max min mul ne neg not or pow reduce_max reduce_min reduce_sum rem reshape"
    " round rsqrt select_n sign sin slice sqrt square squeeze sub tanh transpose".split()
)
_DEEPEST = 100  # levels of equations: a longer chain is a recurrence


class Same(NamedTuple):
    """One value for all rows: a variable, or a number written into the equation."""

    value: Any


class Cut(NamedTuple):
    """Parts of ``base[within]``, of one size along one axis: row i begins at ``starts[i]``."""

    base: Any
    within: tuple[slice, ...]
    axis: int
    starts: np.ndarray
    size: int


class Each(NamedTuple):
    """What one equation makes of rows of its operands."""

    equation: Any
    operands: tuple[Any, ...]


Rows = Same | Cut | Each


class Alike:
    """Finds and computes the rows of lists of values of one jaxpr."""

    def __init__(self, whole: ClosedJaxpr):
        self._whole = whole
        self._makers = {v: (e, i) for e in whole.jaxpr.eqns for i, v in enumerate(e.outvars)}
        self._found: dict[tuple[int, ...], Rows | None] = {}
        self._used: set[int] = set()

    def maker(self, value: Any) -> Any:
        """The equation that makes a value; None for what the jaxpr is given."""
        return None if is_literal(value) else self._makers.get(value, (None, 0))[0]

    def rows(self, values: Sequence[Any]) -> Rows | None:
        """How the values are made together; None where they are not alike."""
        return self._rows(tuple(values), 0)

    def _rows(self, values: tuple[Any, ...], depth: int) -> Rows | None:
        key = tuple(map(id, values))
        if key not in self._found:
            self._found[key] = None
            self._found[key] = self._made(values, depth)
        return self._found[key]

    def _made(self, values: tuple[Any, ...], depth: int) -> Rows | None:
        first = values[0]
        if all(v is first for v in values):
            return Same(first)
        if any(map(is_literal, values)):
            return Same(first) if all(_number(v) == _number(first) for v in values) else None
        if depth > _DEEPEST or any(v not in self._makers for v in values):
            return None
        made = [self._makers[v] for v in values]
        return _split(made) or _slices([e for e, _ in made]) or self._each([e for e, _ in made], depth)

    def _each(self, equations: list[Any], depth: int) -> Each | None:
        template = max(equations, key=lambda e: len(set(map(id, e.invars))))
        kind = _kind(template)
        if template.primitive.name not in _ALIKE or any(e is not template and _kind(e) != kind for e in equations):
            return None
        columns = list(zip(*(e.invars for e in equations), strict=True))
        twice: dict[int, tuple[Any, ...]] = {}  # what the template reads twice, all have to
        for operand, column in zip(template.invars, columns, strict=True):
            if any(map(_differ, twice.setdefault(id(operand), column), column)):
                return None
        found = [self._rows(column, depth + 1) for column in columns]
        return Each(template, tuple(r for r in found if r is not None)) if None not in found else None

    # --- computing ------------------------------------------------------------------------------------------------

    def compute(self, rows: Rows, count: int, known: Mapping[Any, Any]) -> jax.Array:
        """An array of ``count`` rows, from the values of the variables that ``reads`` names."""
        value, single = self._value(rows, known, {})
        return jnp.broadcast_to(value, (count, *value.shape)) if single else value

    def _value(self, rows: Rows, known: Mapping[Any, Any], done: dict[int, Any]) -> tuple[Any, bool]:
        """The value of the rows, or of any one of them where all are the same."""
        if isinstance(rows, Same):
            return read(rows.value, known), True
        if id(rows) not in done:
            done[id(rows)] = (
                (_gathered(rows, known), False) if isinstance(rows, Cut) else self._mapped(rows, known, done)
            )
        return done[id(rows)]

    def _mapped(self, rows: Each, known: Mapping[Any, Any], done: dict[int, Any]) -> tuple[Any, bool]:
        equation = rows.equation
        given = {id(v): (v, r) for v, r in zip(equation.invars, rows.operands, strict=True) if not is_literal(v)}
        values = [self._value(r, known, done) for _, r in given.values()]
        run = function_of(self._whole, [v for v, _ in given.values()], equation.outvars, [equation], frozenset())
        if all(single for _, single in values):
            return run(*(v for v, _ in values))[0], True
        axes = [None if single else 0 for _, single in values]
        return jax.vmap(run, in_axes=axes)(*(v for v, _ in values))[0], False


def read(value: Any, known: Mapping[Any, Any]) -> Any:
    """The array that a variable has, or that a number written into an equation is."""
    return jnp.asarray(value.val, value.aval.dtype) if is_literal(value) else known[value]


def reads(rows: Rows) -> Iterator[Any]:
    """The variables that computing the rows reads."""
    left, seen = [rows], set()
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Each):
            left.extend(node.operands)
        elif isinstance(node, Cut):
            yield node.base
        elif not is_literal(node.value):
            yield node.value


def _differ(one: Any, other: Any) -> bool:
    return one is not other


def _number(value: Any) -> Any:
    return (value.aval.dtype, value.aval.weak_type, repr(value.val)) if is_literal(value) else None


def _kind(equation: Any) -> Any:
    forms = [(v.aval.shape, v.aval.dtype, v.aval.weak_type) for v in (*equation.invars, *equation.outvars)]
    return equation.primitive, equation.params, forms


def _split(made: Sequence[tuple[Any, int]]) -> Cut | None:
    """Parts of one array that was split."""
    equation = made[0][0]
    if equation.primitive.name != "split" or any(e is not equation for e, _ in made):
        return None
    sizes, axis = [int(n) for n in equation.params["sizes"]], equation.params["axis"]
    if len({sizes[at] for _, at in made}) > 1:
        return None
    starts = [0, *accumulate(sizes)]
    base = equation.invars[0]
    index = (slice(None),) * base.aval.ndim
    return Cut(base, index, axis, np.array([starts[at] for _, at in made]), sizes[made[0][1]])


def _slices(equations: Sequence[Any]) -> Cut | None:
    """Slices of one array that differ in where they begin along one axis."""
    first = equations[0]
    base = first.invars[0] if first.invars else None
    if any(e.primitive.name != "slice" or e.invars[0] is not base for e in equations):
        return None
    starts = np.array([e.params["start_indices"] for e in equations])
    sizes = np.array([e.params["limit_indices"] for e in equations]) - starts
    varying = np.flatnonzero((starts != starts[0]).any(0))
    strides = {e.params["strides"] for e in equations}
    if len(varying) != 1 or (sizes != sizes[0]).any() or len(strides) > 1:
        return None
    axis, steps = int(varying[0]), strides.pop() or (1,) * starts.shape[1]
    if steps[axis] != 1:
        return None
    index = [slice(int(s), int(s + n), int(step)) for s, n, step in zip(starts[0], sizes[0], steps, strict=True)]
    index[axis] = slice(None)
    return Cut(base, tuple(index), axis, starts[:, axis], int(sizes[0, axis]))


def _gathered(cut: Cut, known: Mapping[Any, Any]) -> jax.Array:
    base = jnp.moveaxis(known[cut.base][cut.within], cut.axis, 0)
    if cut.size == 1:
        return jnp.expand_dims(_taken(base, cut.starts), cut.axis + 1)
    return jnp.moveaxis(_taken(base, cut.starts[:, None] + np.arange(cut.size)), 1, cut.axis + 1)


def _taken(base: jax.Array, places: np.ndarray) -> jax.Array:
    if places.shape == base.shape[:1] and (places == np.arange(len(places))).all():
        return base
    return base.at[places.astype(np.int32)].get(mode="promise_in_bounds")
