"""What ops share that take SelectedRows: their values alone, and each row once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from lowering.values import Array, LoDArray, SelectedRows, fill_padding

# Fluid merges rows without looking at the height, which a table that was never given one does not have.
_ANY_HEIGHT = 2**31 - 1


def on_values(x: Any, fn: Callable[[Array], Array]) -> Any:
    """``fn`` on the numbers of a dense or sparse value; rows and LoD stay, and entries of padding zero."""
    if isinstance(x, SelectedRows):
        return replace(x, values=fill_padding(fn(x.values), x.nrows, backward=True))
    if isinstance(x, LoDArray):
        return x.with_data(fn(x.data))
    return fn(x)


def merge_rows(grad: SelectedRows) -> SelectedRows:
    """``grad`` with each row once, rows ascending; ``nrows`` counts them (entries from there on are out of range).

    The values of a repeated row are added in the order in which they come.
    """
    count, height = grad.rows.shape[0], grad.height or _ANY_HEIGHT
    if count == 0:
        return SelectedRows(grad.rows, grad.values, grad.height, jnp.int32(0))
    rows = _marked(grad)
    order = jnp.argsort(rows, stable=True)
    rows, values = rows[order], grad.values[order]
    first = jnp.concatenate([jnp.ones(1, bool), rows[1:] != rows[:-1]])
    place = jnp.cumsum(first, dtype=jnp.int32) - 1
    merged = jnp.zeros_like(values).at[place].add(values)
    unique = jnp.full_like(rows, height).at[place].set(rows)
    nrows = jnp.sum(first & (rows < height), dtype=jnp.int32)
    return SelectedRows(unique, merged, grad.height, nrows)


def distinct_rows(parts: Sequence[SelectedRows]) -> SelectedRows:
    """All rows of ``parts``, each once: ascending if one is repeated, else in the order in which they come.

    Values without a row do not count.
    """
    joined = _joined(parts) if len(parts) > 1 else parts[0]
    merged = merge_rows(joined)
    if not joined.rows.shape[0]:
        return merged
    distinct = merged.nrows == (joined.rows.shape[0] if joined.nrows is None else joined.nrows)
    rows = jnp.where(distinct, _marked(joined), merged.rows)
    values = jnp.where(distinct, joined.values[: joined.rows.shape[0]], merged.values)
    return replace(merged, rows=rows, values=values)


def _marked(part: SelectedRows) -> Array:
    """The row numbers; out of range for entries of padding."""
    if part.nrows is None:
        return part.rows
    return jnp.where(jnp.arange(part.rows.shape[0]) < part.nrows, part.rows, part.height or _ANY_HEIGHT)


def _joined(parts: Sequence[SelectedRows]) -> SelectedRows:
    """The entries of all parts one after the other, padding at the end; values without a row do not count."""
    rows = jnp.concatenate([_marked(p) for p in parts])
    values = jnp.concatenate([p.values[: p.rows.shape[0]] for p in parts])
    if all(p.nrows is None for p in parts):
        return SelectedRows(rows, values, parts[0].height)
    real = jnp.concatenate([_real(p) for p in parts])
    order = jnp.argsort(~real, stable=True)
    return SelectedRows(rows[order], values[order], parts[0].height, jnp.sum(real, dtype=jnp.int32))


def _real(part: SelectedRows) -> Array:
    count = part.rows.shape[0]
    return jnp.arange(count) < (count if part.nrows is None else part.nrows)
