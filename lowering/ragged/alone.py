"""One sequence alone: its rows are its steps, so that a recurrence over them sorts, gathers and masks nothing.

Sentence by sentence is how taggers and translators are served. In packed time-major order each recurrence would gather
its inputs and its results, and sum over sequences to find where the one row of a step lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.ragged.rows import expand_dims, row_numbers, step_before, stretch, take
from lowering.values import Array, is_concrete


@dataclass(frozen=True)
class Alone:
    """The rows of one sequence over ``capacity``; has the interface of ``time_major.Packing``.

    Attributes:
        total: int32 [], the sequence's length; rows from there on are padding.
        reverse: whether the recurrence starts at the last row.
    """

    capacity: int
    total: Array
    reverse: bool

    n: ClassVar[int] = 1

    @property
    def rank(self) -> Array:
        """int32 [1]: the sequence's rank."""
        return np.zeros(1, np.int32)

    @property
    def sizes(self) -> Array:
        """int32 [1]: its length."""
        return self.total.reshape(1)

    @property
    def seg(self) -> Array:
        """int32 [capacity]: the sequence of each row."""
        return 0 * row_numbers(self.capacity)

    @property
    def end(self) -> Array:
        """int32 []: one past the last row."""
        return self.total

    @property
    def first(self) -> Array:
        """bool [capacity]: where the recurrence starts."""
        return row_numbers(self.capacity) == (self.total - 1 if self.reverse else 0)

    def packed(self, x: Array) -> Array:
        """Rows as loops read them: as they are."""
        return x

    def unpacked(self, buffer: Array) -> Array:
        """What a loop wrote, in row order; padding rows are copies of row 0."""
        rows = row_numbers(self.capacity)
        if is_concrete(self.total) and is_concrete(rows) and int(self.total) == rows.size:
            return buffer
        return jnp.where(expand_dims(rows < self.total, buffer.ndim), buffer, buffer[:1])

    def of_backward(self, buffer: Array) -> Array:
        """What a backward loop wrote, in row order; padding rows are zeros."""
        return buffer

    def batched(self, buffer: Array) -> Array:
        """What a loop wrote, in the order of its steps."""
        return take(buffer, self._steps()) if self.reverse else buffer

    def unbatched(self, values: Array) -> Array:
        """The inverse of ``batched``, of values that may have been cut to their valid rows."""
        if values.shape[0] != self.capacity:
            values = stretch(values, 0, self.capacity)
        return take(values, self._steps()) if self.reverse else values

    def sorted(self, per_sequence: Array) -> Array:
        """[1, ...] by rank."""
        return per_sequence

    def unsorted(self, per_rank: Array) -> Array:
        """[1, ...] by sequence."""
        return per_rank

    def previous(self, x: Array, initial: Array | None) -> Array:
        """The row one step earlier, in row order; ``initial`` [1, ...] (default zeros) at the start."""
        return step_before(x, self.first, initial, reverse=self.reverse)

    def _steps(self) -> Array:
        return self.total - 1 - row_numbers(self.capacity)


def forward(p: Alone, step: Any, carry: Any, reads: Any, buffers: Any) -> Any:
    """``time_major.run_forward`` over the rows; returns the ``buffers`` written."""
    return _walk(p, step, carry, reads, buffers, falling=p.reverse)[1]


def backward(p: Alone, step: Any, carry: Any, reads: Any, buffers: Any) -> tuple[Any, Any]:
    """``time_major.run_backward`` over the rows; returns (final carry, the ``buffers`` written)."""
    return _walk(p, step, carry, reads, buffers, falling=not p.reverse)


def _walk(p: Alone, step: Any, carry: Any, reads: Any, buffers: Any, *, falling: bool) -> tuple[Any, Any]:
    def body(loop: Any) -> Any:
        t, carry, buffers = loop
        at = p.total - 1 - t if falling else t
        windows = jax.tree_util.tree_map(lambda b: window(b, at, 1), reads)
        carry, rows = step(carry, windows, np.int32(1))
        return t + 1, carry, write(buffers, rows, at)

    _, carry, buffers = lax.while_loop(lambda loop: loop[0] < p.total, body, (jnp.int32(0), carry, buffers))
    return carry, buffers


def window(buffer: Array, start: Array, width: int) -> Array:
    """``width`` rows from ``start`` on."""
    return lax.dynamic_slice_in_dim(buffer, start, width, axis=0)


def write(buffers: Any, rows: Any, start: Array) -> Any:
    """Pytrees of buffers with ``rows`` from ``start`` on."""
    put = lambda buffer, value: lax.dynamic_update_slice_in_dim(buffer, value, start, axis=0)  # noqa: E731
    return jax.tree_util.tree_map(put, buffers, rows)
