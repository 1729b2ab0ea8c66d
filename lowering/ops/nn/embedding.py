"""lookup_table, lookup_table_v2 and lookup_table_dequant: table lookup by integer ids.

With is_sparse, the gradient of the table is a SelectedRows with one row per id (duplicates are not merged).
"""

import jax
import jax.numpy as jnp

from lowering.engine.checks import Demand
from lowering.engine.shapes.infer_rules import by_rule
from lowering.ops import fitting
from lowering.registry import MASKED, Long, Value, Wise, op
from lowering.values import LoDArray, Meta, SelectedRows, data_of

VENDOR = "is_distributed remote_prefetch trainer_id height_sections epmap table_names"


def gather_rows(table: jax.Array, ids: jax.Array, *, inside: bool = False) -> jax.Array:
    """table[ids]; NaN for an id out of range, which is rejected if values are checked.

    Of ids known to be ``inside`` nothing is masked: XLA would copy the mask into whatever reads the rows.
    """
    fill = jnp.nan if jnp.issubdtype(table.dtype, jnp.floating) else 0
    mode = "promise_in_bounds" if inside else "fill"
    return jnp.asarray(table).at[ids].get(mode=mode, fill_value=fill, wrap_negative_indices=False)


def _table(w):
    """The dense table of a W that may be a SelectedRows (an auto-growing table)."""
    return w.to_dense() if isinstance(w, SelectedRows) else data_of(w)


def _lookup(w, ids, padding_idx, checked):
    rows = gather_rows(_table(w), ids, inside=checked)
    if padding_idx == -1:
        return rows
    return jnp.where((ids == padding_idx)[..., None], jnp.zeros((), rows.dtype), rows)


def _table_grad(w: Meta, ids: LoDArray, d_out, *, is_sparse, padding_idx):
    """W@GRAD: one SelectedRows entry per id, or a dense table (rows of padding_idx stay zero there)."""
    width = w.shape[1]
    nrows = ids.nrows
    per_row = ids.data.size // max(ids.data.shape[0], 1)
    flat, values = ids.data.reshape(-1), d_out.reshape(-1, width)
    if is_sparse:
        true_rows = None if nrows is None else nrows * per_row
        return SelectedRows(flat.astype(jnp.int64), values, w.shape[0], true_rows)
    if padding_idx != -1:
        values = jnp.where((flat == padding_idx)[:, None], jnp.zeros((), values.dtype), values)
    zeros = jnp.zeros((w.shape[0], width), values.dtype)
    return zeros.at[flat].add(values, mode="drop", wrap_negative_indices=False)


def _ids_demand(w: Meta, ids, *, padding_idx):
    """Ids are rows of the table, or padding_idx, wherever that is."""
    return [Demand("ids", ids, 0, w.shape[0], None if padding_idx == -1 else padding_idx)]


def _rows_of(column):
    """The inference of a lookup by ids, which stand in a last dim of 1 where they are a ``column``."""

    def rule(shapes, attr):
        table, ids = shapes["W"], shapes["Ids"]
        fits = len(table) == 2 and table[1] > 0 and (not column or (len(ids) > 1 and ids[-1] == 1))
        return {"Out": (*(ids[:-1] if column else ids), table[1])} if fits else None

    return by_rule(rule)


@op(diff="w", lod={"Out": "ids"}, rows=Wise("ids"), vendor=VENDOR + " grad_inplace", infer=_rows_of(True))
def lookup_table(w: Value, ids, *, is_sparse: bool = False, padding_idx: Long = -1, checked: bool = False):
    """Out[..., D] = W[Ids[..., 1]]; rows of padding_idx are zeros."""
    return _lookup(w, ids.reshape(ids.shape[:-1]), padding_idx, checked)


@lookup_table.fits
def _(w):
    fitting.rank("W", w, 2)


@op(diff="w", lod={"Out": "ids"}, rows=Wise("ids"), vendor=VENDOR, infer=_rows_of(False))
def lookup_table_v2(w: Value, ids, *, is_sparse: bool = False, padding_idx: Long = -1, checked: bool = False):
    """Out[..., D] = W[Ids[...]]; rows of padding_idx are zeros."""
    return _lookup(w, ids, padding_idx, checked)


@lookup_table_v2.fits
def _(w):
    fitting.rank("W", w, 2)


for _lookup_op in (lookup_table, lookup_table_v2):
    _lookup_op.check(_ids_demand)
    _lookup_op.grad(_table_grad, rows=MASKED)


@op(diff=(), lod={"Out": "ids"}, rows=Wise("ids"))
def lookup_table_dequant(w, ids, *, padding_idx: Long = -1):
    """Out[..., 4 * (D - 2)] from rows [min, max, packed bytes...]: min + byte * (max - min) / 256.

    Four unsigned bytes are packed in each float32 of the table, the lowest address first.
    """
    ids = ids.reshape(ids.shape[:-1])
    rows = gather_rows(w, ids)
    low, high = rows[..., :1], rows[..., 1:2]
    codes = jax.lax.bitcast_convert_type(rows[..., 2:], jnp.uint8)
    codes = codes.reshape(*codes.shape[:-2], -1).astype(w.dtype)
    out = (high - low) / 256 * codes + low
    if padding_idx == -1:
        return out
    return jnp.where((ids == padding_idx)[..., None], jnp.zeros((), out.dtype), out)


@lookup_table_dequant.check
def _(w: Meta, ids, *, padding_idx):
    return _ids_demand(w, ids, padding_idx=padding_idx)
