"""Pooling one axis at a time: windows along an axis, their sum or maximum, and the gradients.

Sums and maxima over a box separate into the axes, and so does "the first maximum in row-major order" that Fluid's
gradient picks. With k taps per axis (not k*k) this is twice as fast as reduce_window and 5 times as fast as
select_and_scatter on XLA:CPU.
"""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.engine.pinned import once_on_cpu
from lowering.sizes.counts import RowSize
from lowering.symbols import is_symbol

UNROLL = 16


@dataclass(frozen=True)
class Axis:
    """The windows along one axis of `size` rows: window i covers rows starts[i] .. starts[i] + lengths[i].

    A size that is that of a dim with room is the room; what is counted are the rows that a run uses.
    """

    size: int
    out: int
    k: int
    stride: int
    low: int

    @property
    def high(self) -> int:
        """Rows that the last window reaches past the end (negative: rows it leaves unread)."""
        return (self.out - 1) * self.stride + self.k - self.low - self.size

    @property
    def beyond(self) -> bool:
        """Whether the last window may reach past as many rows of padding as there are before the first."""
        return is_symbol(self.high) or self.high > self.low

    @property
    def whole(self) -> bool:
        """One window that is the whole axis."""
        return self.out == 1 and self.k == self.size and self.low == 0

    @property
    def long(self) -> bool:
        """Windows of more rows than are worth a tap each."""
        return is_symbol(self.k) or self.k > UNROLL

    @property
    def tiled(self) -> bool:
        """Windows side by side that cover the axis exactly."""
        return self.stride == self.k and self.low == 0 and self.out * self.k == self.size

    @property
    def filled(self) -> bool:
        """Whether each window is known to have rows in it."""
        return not _in_run(self.size) and bool((self.counts() > 0).all())

    def counts(self, around: int = 0) -> np.ndarray:
        """Rows in each window, of the input and of ``around`` more at each of its ends."""
        xp = jnp if _in_run(self.size) else np
        start = xp.arange(self.out) * self.stride - self.low
        end = xp.asarray(used(self.size) + around)
        return xp.minimum(start + xp.asarray(self.k), end) - xp.maximum(start, -around)


@dataclass(frozen=True)
class AdaptiveAxis:
    """Adaptive windows: window i covers rows floor(i * size / out) up to ceil((i + 1) * size / out)."""

    size: int
    out: int
    filled = True

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The first row of each window, and the one after its last."""
        i, size = np.arange(self.out, dtype=np.int32), used(self.size)
        return i * size // self.out, -(-(i + 1) * size // self.out)

    @cached_property
    def table(self) -> np.ndarray:
        """Row of tap t of window i, [out, taps]; short windows repeat their last row."""
        start, end = self.bounds
        xp = jnp if _in_run(self.size) else np
        longest = -(-int(self.size) // self.out) + 1 if _in_run(self.size) else (end - start).max()
        return xp.minimum(start[:, None] + np.arange(longest), end[:, None] - 1)

    def counts(self) -> np.ndarray:
        """Rows of the input in each window."""
        start, end = self.bounds
        return end - start

    def matrix(self) -> np.ndarray:
        """0/1 matrix [out, size]: which rows each window sums."""
        (start, end), rows = self.bounds, np.arange(int(self.size))
        return (rows >= start[:, None]) & (rows < end[:, None])


def used(size):
    """A size; of a dim with room, the number of rows that a run uses."""
    return size.nrows if isinstance(size, RowSize) else size


def _in_run(size) -> bool:
    """Whether only a run knows a size."""
    return is_symbol(size) or isinstance(size, RowSize)


def adaptive_axis(size: int, out: int) -> Axis | AdaptiveAxis:
    """Adaptive windows, as plain tiles where they divide evenly."""
    if out > 0 and not isinstance(size, RowSize) and size % out == 0:
        return Axis(size, out, size // out, size // out, 0)
    return AdaptiveAxis(size, out)


def _pad(x, dim, axis: Axis, fill):
    config = [(0, 0, 0)] * x.ndim
    config[dim] = (axis.low, axis.high, 0)
    return lax.pad(x, jnp.asarray(fill, x.dtype), config)


def taps(x, dim, axis, fill) -> list[jax.Array]:
    """The rows that tap 0, 1, ... of every window reads: arrays with axis `dim` of size `out`."""
    if isinstance(axis, AdaptiveAxis):
        return [jnp.take(x, jnp.asarray(column), axis=dim) for column in axis.table.T]
    padded = _pad(x, dim, axis, fill)
    stop = (axis.out - 1) * axis.stride + 1
    return [lax.slice_in_dim(padded, t, t + stop, axis.stride, dim) for t in range(axis.k)]


def _tap(x, dim, axis, fill):
    """(number of taps, the function from t, maybe traced, to what ``taps`` gives at t)."""
    if isinstance(axis, AdaptiveAxis):
        columns = axis.table.T
        return len(columns), lambda t: jnp.take(x, jnp.asarray(columns)[t], axis=dim)
    padded, span = _pad(x, dim, axis, fill), (axis.out - 1) * axis.stride + 1

    def tap(t):
        return lax.slice_in_dim(lax.dynamic_slice_in_dim(padded, t, span, dim), 0, span, axis.stride, dim)

    return axis.k, tap


def _tile_view(x, dim, axis: Axis):
    return x.reshape(*x.shape[:dim], axis.out, axis.k, *x.shape[dim + 1 :])


def _untile(x, dim):
    return x.reshape(*x.shape[:dim], x.shape[dim] * x.shape[dim + 1], *x.shape[dim + 2 :])


def max_axis(x: jax.Array, dim: int, axis) -> jax.Array:
    """The largest row of each window."""
    lowest = np.array(-np.inf, x.dtype)
    if isinstance(axis, Axis) and axis.long:
        if axis.tiled:
            return _tile_view(x, dim, axis).max(axis=dim + 1)
        return _reduce_window(x, dim, axis, lowest, lax.max)
    if isinstance(axis, AdaptiveAxis) and axis.table.shape[1] > UNROLL:
        return jnp.take(x, jnp.asarray(axis.table), axis=dim).max(axis=dim + 1)
    rows = taps(x, dim, axis, lowest)
    best = rows[0]
    for row in rows[1:]:
        best = jnp.maximum(best, row)
    return best


def sum_axis(x: jax.Array, dim: int, axis) -> jax.Array:
    """The sum of each window."""
    if isinstance(axis, AdaptiveAxis):
        return _apply_matrix(x, dim, axis.matrix())
    if axis.long:
        if axis.tiled:
            return _tile_view(x, dim, axis).sum(axis=dim + 1)
        return _reduce_window(x, dim, axis, np.zeros((), x.dtype), lax.add)
    rows = taps(x, dim, axis, 0)
    return sum(rows[1:], rows[0])


def _reduce_window(x, dim, axis: Axis, init, combine):
    window, strides, pads = [1] * x.ndim, [1] * x.ndim, [(0, 0)] * x.ndim
    window[dim], strides[dim], pads[dim] = axis.k, axis.stride, (axis.low, axis.high)
    return lax.reduce_window(x, init, combine, window, strides, pads)


def _apply_matrix(x, dim, matrix):
    """Replace axis `dim` by matrix @ axis."""
    y = jnp.tensordot(x, jnp.asarray(matrix, x.dtype), axes=((dim,), (1,)))
    return jnp.moveaxis(y, -1, dim)


def _place(rows, dim, axis, t):
    """The adjoint of tap `t`: rows back at where it read."""
    if isinstance(axis, AdaptiveAxis):
        matrix = np.arange(axis.size)[:, None] == axis.table[:, t]
        return _apply_matrix(rows, dim, matrix)
    span = (axis.out - 1) * axis.stride + 1
    config = [(0, 0, 0)] * rows.ndim
    config[dim] = (t - axis.low, axis.size + axis.low - t - span, axis.stride - 1)
    return lax.pad(rows, jnp.zeros((), rows.dtype), config)


def sum_axis_grad(dy: jax.Array, dim: int, axis) -> jax.Array:
    """The adjoint of `sum_axis`: every row gets the sum of its windows' gradients."""
    if isinstance(axis, AdaptiveAxis):
        return _apply_matrix(dy, dim, axis.matrix().T)
    if axis.tiled:
        view = jnp.expand_dims(dy, dim + 1)
        shape = list(view.shape)
        shape[dim + 1] = axis.k
        return _untile(jnp.broadcast_to(view, shape), dim)
    if axis.long:
        starts = np.arange(axis.out) * axis.stride - axis.low
        rows = np.arange(axis.size)[:, None]
        return _apply_matrix(dy, dim, (rows >= starts) & (rows < starts + axis.k))
    total = _place(dy, dim, axis, 0)
    for t in range(1, axis.k):
        total = total + _place(dy, dim, axis, t)
    return total


def first_tap(x: jax.Array, y: jax.Array, dim: int, axis) -> jax.Array:
    """Which tap of each window first equals the window's maximum y.

    A float32, found once: all rows of the window ask for it.
    """
    rows = taps(x, dim, axis, -jnp.inf)
    found = jnp.full(y.shape, len(rows), jnp.float32)
    for t in reversed(range(len(rows))):
        found = jnp.where(rows[t] == y, jnp.float32(t), found)
    return once_on_cpu(found)


def max_axis_grad(x: jax.Array, y: jax.Array, dy: jax.Array, dim: int, axis) -> jax.Array:
    """The adjoint of `max_axis`: each window's gradient goes to its first maximum.

    Where windows overlap, each row reads the gradients of several.
    """
    if isinstance(axis, Axis) and axis.tiled:
        return _tiled_max_grad(x, y, dy, dim, axis)
    found, dy = first_tap(x, y, dim, axis), once_on_cpu(dy)
    zero = jnp.zeros((), dy.dtype)
    count = axis.table.shape[1] if isinstance(axis, AdaptiveAxis) else axis.k
    parts = [_place(jnp.where(found == t, dy, zero), dim, axis, t) for t in range(count)]
    return sum(parts[1:], parts[0])


def _tiled_max_grad(x, y, dy, dim, axis: Axis):
    view = _tile_view(x, dim, axis)
    if axis.long:
        found = jnp.argmax(view, axis=dim + 1).astype(jnp.int32)
    else:
        found = first_tap(x, y, dim, axis)
    tap = lax.broadcasted_iota(found.dtype, view.shape, dim + 1)
    hit = tap == jnp.expand_dims(found, dim + 1)
    return _untile(jnp.where(hit, jnp.expand_dims(dy, dim + 1), jnp.zeros((), dy.dtype)), dim)


def argmax_axis(value: jax.Array, index: jax.Array, dim: int, axis) -> tuple[jax.Array, jax.Array]:
    """(largest row, the `index` carried by its first occurrence) of each window."""
    count, values = _tap(value, dim, axis, -jnp.inf)
    _, indices = _tap(index, dim, axis, -1)

    def larger(t, found):
        best, at = found
        v, i = values(t), indices(t)
        takes = (v > best) | (at < 0)
        return jnp.where(takes, v, best), jnp.where(takes, i, at)

    return lax.fori_loop(1, count, larger, (values(0), indices(0)), unroll=count <= UNROLL)
