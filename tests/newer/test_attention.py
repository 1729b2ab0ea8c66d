"""flash_attn, which Paddle runs on GPUs alone, is the ops that it stands for."""

from __future__ import annotations

import numpy as np
import pytest

import lowering


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool, mask: np.ndarray | None) -> np.ndarray:
    """The definition, head by head, in float64."""
    out = np.zeros(q.shape)
    for b, h in np.ndindex(q.shape[0], q.shape[2]):
        own = h * k.shape[2] // q.shape[2]
        scores = q[b, :, h].astype(np.float64) @ k[b, :, own].T / np.sqrt(q.shape[-1])
        scores = scores if mask is None else scores + mask[b, 0]
        for i in range(len(scores)):
            seen = i + 1 + k.shape[1] - q.shape[1] if causal else k.shape[1]
            weights = np.exp(scores[i, :seen] - scores[i, :seen].max())
            out[b, i, h] = weights @ v[b, :seen, own] / weights.sum()
    return out


@pytest.mark.parametrize(("causal", "heads", "masked"), [(False, 2, True), (True, 2, False), (True, 1, False)])
def test_flash_attention(causal: bool, heads: int, masked: bool) -> None:
    rng = np.random.default_rng(3)
    q = rng.normal(size=(2, 3, 2, 4)).astype("float32")
    k, v = (rng.normal(size=(2, 5, heads, 4)).astype("float32") for _ in range(2))
    mask = rng.normal(size=(2, 1, 3, 5)).astype("float32") if masked else None
    out = lowering.get_op("flash_attn").fn(q, k, v, None, mask, causal=causal)[0]
    np.testing.assert_allclose(out, attention(q, k, v, causal, mask), rtol=1e-5, atol=1e-5)


def test_dropout_is_refused() -> None:
    x = np.zeros((1, 1, 1, 2), "float32")
    with pytest.raises(ValueError, match="while training"):
        lowering.get_op("flash_attn").fn(x, x, x, dropout=0.5)
