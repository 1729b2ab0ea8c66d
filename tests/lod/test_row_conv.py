"""row_conv against its formula: contexts that end within a sequence, with it, and past it; padded batches too."""

import jax
import numpy as np
import pytest

import lowering
from lowering.values import LoDArray

CONTEXTS, WIDTH = [1, 3, 9], 2


def look_ahead(rows, filter):
    """(Out, the gradient of X, that of Filter) for one sequence whose Out has the gradient 1, 2, 3 ..."""
    given = 1.0 + np.arange(rows.size).reshape(rows.shape)
    out, d_rows, d_filter = np.zeros_like(rows), np.zeros_like(rows), np.zeros_like(filter)
    for r in range(len(rows)):
        for w in range(min(len(filter), len(rows) - r)):
            out[r] += rows[r + w] * filter[w]
            d_rows[r + w] += given[r] * filter[w]
            d_filter[w] += given[r] * rows[r + w]
    return out, d_rows, d_filter, given


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("padding", [0, 2])
def test_sequences(context, padding, rng):
    offsets = np.array([0, 4, 4, 5, 8], np.int32)
    rows, filter = rng.standard_normal((8, WIDTH)), rng.standard_normal((context, WIDTH))
    each = [look_ahead(rows[a:b], filter) for a, b in zip(offsets, offsets[1:], strict=False)]
    out, d_rows, _, given = (np.concatenate(parts) for parts in zip(*each, strict=True))
    d_filter = sum(parts[2] for parts in each)
    edge, zeros = np.repeat(rows[-1:], padding, 0), np.zeros((padding, WIDTH))
    nrows = np.int32(8) if padding else None
    with jax.enable_x64(True):
        x = LoDArray(np.concatenate([rows, edge]), (offsets,), nrows)
        found = lowering.get_op("row_conv")(x, filter)
        grads = lowering.get_op("row_conv_grad")(x, filter, np.concatenate([given, zeros]))
    np.testing.assert_allclose(found.data[:8], out, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(grads[0].data, np.concatenate([d_rows, zeros]), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(grads[1], d_filter, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_padded_batch(context, rng):
    rows, filter = rng.standard_normal((3, 4, WIDTH)), rng.standard_normal((context, WIDTH))
    out, d_rows, d_filter, given = zip(*(look_ahead(part, filter) for part in rows), strict=True)
    with jax.enable_x64(True):
        found = lowering.get_op("row_conv")(LoDArray(rows, ()), filter)
        grads = lowering.get_op("row_conv_grad")(LoDArray(rows, ()), filter, np.stack(given))
    np.testing.assert_allclose(found.data, np.stack(out), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(grads[0].data, np.stack(d_rows), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(grads[1], sum(d_filter), rtol=1e-12, atol=1e-12)
