"""Ops of exported language models, which Paddle runs on GPUs alone: each is the formula that it stands for."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import fluidjax as fluid
import lowering

Array = NDArray[Any]


def op(type: str, *args: Any, **given: Any) -> Any:
    """The op's rule of arrays, compiled at once."""
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
    attrs = {name: value for name, value in given.items() if name not in arrays}
    rule = lowering.get_op(type).fn
    return jax.jit(lambda args, arrays: rule(*args, **arrays, **attrs))(args, arrays)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype("float32")


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def close(ours: object, wanted: Array) -> None:
    np.testing.assert_allclose(np.asarray(ours), wanted, rtol=1e-5, atol=1e-5)


def layer_norm(x: Array, scale: Array | float = 1.0, bias: Array | float = 0.0) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias


def test_norms_of_sums(rng: np.random.Generator) -> None:
    x, residual, bias, weight, shift = normal(rng, 2, 3, 4), normal(rng, 2, 3, 4), *(normal(rng, 4) for _ in range(3))
    total = x + residual + bias
    rooted = total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-5) * weight + shift
    out, kept, _ = op("rms_norm", x, weight, bias, residual, shift, begin_norm_axis=2)
    close(out, rooted)
    close(kept, total)
    eighth, *_ = op("rms_norm", x, weight, bias, residual, shift, begin_norm_axis=2, quant_scale=0.5,
                    quant_max_bound=127.0, quant_min_bound=-127.0)  # fmt: skip
    assert eighth.dtype == np.int8
    close(eighth, np.clip(np.rint(rooted * 63.5), -127, 127))
    alone, none, _ = op("rms_norm", x, weight, bias, begin_norm_axis=2)  # no residual, no bias: as in Paddle
    close(alone, x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight)
    assert none is None
    twice = x + 2 * residual + bias
    out, kept, mean, _ = op("fused_bias_residual_layernorm", x, bias, residual, weight, shift, epsilon=1e-5,
                            residual_alpha=2.0, begin_norm_axis=2)  # fmt: skip
    close(out, layer_norm(twice, weight, shift))
    close(kept, twice)
    close(mean, twice.mean(-1).reshape(-1))
    close(op("fused_bias_residual_layernorm", x, bias, residual, epsilon=1e-5)[0], total)
    given = {"dropout_rate": 0.25, "is_test": True, "dropout_implementation": "downgrade_in_infer"}
    y, kept, *_ = op("fused_bias_dropout_residual_layer_norm", x, residual, bias, weight, shift, **given)
    close(kept, residual + 0.75 * (x + bias))
    close(y, layer_norm(residual + 0.75 * (x + bias), weight, shift))
    close(op("skip_layernorm", x, residual, weight, shift), layer_norm(x + residual, weight, shift))
    close(op("fused_dropout_add", x, residual, p=0.5, is_test=True)[0], x + residual)
    tables, ids = [normal(rng, 5, 4) for _ in range(2)], [rng.integers(0, 5, (2, 3, 1)) for _ in range(2)]
    found = tables[0][ids[0][..., 0]] + tables[1][ids[1][..., 0]]
    close(op("fused_embedding_eltwise_layernorm", ids, tables, shift, weight), layer_norm(found, weight, shift))


@pytest.mark.parametrize("type", ["fused_dropout_add", "fused_bias_dropout_residual_layer_norm"])
def test_dropout_is_refused(type: str) -> None:
    x = np.zeros((1, 2), "float32")
    with pytest.raises(ValueError, match="while training"):
        op(type, x, x)


def test_gated_activations(rng: np.random.Generator) -> None:
    x, bias = normal(rng, 2, 6), normal(rng, 6)
    first, second = np.split(x + bias, 2, axis=1)
    close(op("fused_bias_act", x, bias, act_method="swiglu"), first / (1 + np.exp(-first)) * second)
    close(op("fused_bias_act", x, bias, act_method="relu"), np.maximum(x + bias, 0))
    whole, scales = rng.integers(-9, 9, (2, 6)).astype("int32"), np.abs(normal(rng, 6))
    out = op("fused_bias_act", whole, bias, scales, act_method="relu", compute_dtype="fp32", quant_scale=0.1)
    raised = np.maximum(whole * scales + bias, 0) * 12.7
    close(out, np.clip(np.floor(raised + 0.5), -127, 127))
    with pytest.raises(ValueError, match="act_method is 'sine'; expected one of"):
        op("fused_bias_act", x, act_method="sine")


def rotated(x: Array, angles: Array, neighbours: bool) -> Array:
    """x [batch, length, heads, size] turned by angles [batch, length, size], number by number."""
    out = np.zeros_like(x)
    half = x.shape[-1] // 2
    for at in np.ndindex(*x.shape):
        *place, i = at
        other = (i ^ 1) if neighbours else (i + half) % (2 * half)
        sign = -1 if other > i else 1
        angle = angles[at[0], at[1], i]
        out[at] = x[at] * np.cos(angle) + sign * x[*place, other] * np.sin(angle)
    return out


@pytest.mark.parametrize("neighbours", [True, False])
def test_rotary_positions(rng: np.random.Generator, neighbours: bool) -> None:
    q, k = normal(rng, 2, 3, 2, 4), normal(rng, 2, 3, 1, 4)
    frequencies = 10000.0 ** -np.array([0, 0, 0.5, 0.5])
    given = np.broadcast_to(np.arange(3)[:, None] * frequencies, (2, 3, 4)).astype("float32")
    out_q, out_k, none = op("fused_rotary_position_embedding", q, k, use_neox_rotary_style=neighbours)
    close(out_q, rotated(q, given, neighbours))
    close(out_k, rotated(k, given, neighbours))
    assert none is None
    angles, ids = normal(rng, 5, 4), rng.integers(0, 5, (2, 3))
    out_q, *_ = op("fused_rotary_position_embedding", q, None, None, np.sin(angles), np.cos(angles), ids,
                   use_neox_rotary_style=neighbours)  # fmt: skip
    close(out_q, rotated(q, angles[ids], neighbours))
    out_q, *_ = op("fused_rotary_position_embedding", q.swapaxes(0, 1), use_neox_rotary_style=neighbours,
                   time_major=True)  # fmt: skip
    close(out_q, rotated(q, given, neighbours).swapaxes(0, 1))


def attention(q: Array, k: Array, v: Array, scale: float, mask: Array | float = 0.0) -> Array:
    """softmax(scale q k^T + mask) v of [..., length, size]."""
    return softmax(scale * q @ np.swapaxes(k, -1, -2) + mask) @ v


def test_lengths_of_their_own(rng: np.random.Generator) -> None:
    q, k, v = normal(rng, 2, 4, 3, 4), normal(rng, 2, 2, 5, 4), normal(rng, 2, 2, 5, 4)
    mask, ends, keys = normal(rng, 2, 1, 3, 5), np.array([[3], [2]], "int32"), np.array([[5], [3]], "int32")
    out = op("variable_length_memory_efficient_attention", q, k, v, ends, keys, mask, scale=0.5)
    for b, h in np.ndindex(2, 4):
        n, m = ends[b, 0], keys[b, 0]
        wanted = attention(q[b, h, :n], k[b, h // 2, :m], v[b, h // 2, :m], 0.5, mask[b, 0, :n, :m])
        close(out[b, h, :n], wanted)
        assert not np.any(out[b, h, n:])
    rows, others = np.array([0, 2, 5], "int32"), np.array([0, 3, 7], "int32")
    q, k, v = normal(rng, 5, 4, 4), normal(rng, 7, 2, 4), normal(rng, 7, 2, 4)
    out = op("flash_attn_unpadded", q, k, v, rows, others, scale=0.5, causal=True)[0]
    for b, h in np.ndindex(2, 4):
        own, theirs = slice(*rows[b : b + 2]), slice(*others[b : b + 2])
        n, m = rows[b + 1] - rows[b], others[b + 1] - others[b]
        hidden = np.where(np.tril(np.ones((n, m)), m - n) > 0, 0, -np.inf)
        close(out[own, h], attention(q[own, h], k[theirs, h // 2], v[theirs, h // 2], 0.5, hidden))


@pytest.mark.parametrize("halves", [True, False])
def test_a_step_of_decoding(rng: np.random.Generator, halves: bool) -> None:
    """Three steps through the cache are the attention of three positions; a row of length -1 is left out."""
    heads, kv, size, steps = 4, 2, 8, 3
    x, bias = normal(rng, steps, 2, (heads + 2 * kv) * size), normal(rng, (heads + 2 * kv) * size)
    cache, angles = np.zeros((2, 2, kv, 5, size), "float32"), normal(rng, steps, 2, size)
    turned = (x + bias).reshape(steps, 2, heads + 2 * kv, size)
    q, k, v = np.split(turned, (heads, heads + kv), axis=2)
    q, k = (rotated(t.swapaxes(0, 1), angles.swapaxes(0, 1), not halves) for t in (q, k))
    for step in range(steps):
        tensor = np.stack([np.cos(angles[step]), np.sin(angles[step])])
        given = {"rotary_tensor": tensor, "rotary_emb_dims": 1, "use_neox_rotary_style": halves}
        length = np.array([[step], [step]], "int32")
        out, cache, _ = op("masked_multihead_attention", x[step], cache, bias, None, None, length, **given)
        for b, h in np.ndindex(2, heads):
            seen = slice(0, step + 1)
            wanted = attention(q[b, step : step + 1, h], k[b, seen, h // 2], v[seen, b, h // 2], size**-0.5)
            close(out[b, h * size : (h + 1) * size], wanted[0])
    kept = np.asarray(cache[0]).reshape(2, kv, size // 4, 5, 4)  # of float32 four numbers are 16 bytes
    close(kept[:, :, 1, 2], k[:, 2, :, 4:])
    mask = np.zeros((2, 1, 1, 4), "float32")  # a mask of four: position 3
    by_mask, _, _ = op("masked_multihead_attention", x[0], cache, None, mask)
    by_length, after, _ = op("masked_multihead_attention", x[0], cache, None, None, None, np.array([3, -1], "int32"))
    close(by_length[0], by_mask[0])
    assert not np.any(by_length[1])
    close(after[:, 1], cache[:, 1])
    with pytest.raises(ValueError, match="is told no position"):
        op("masked_multihead_attention", x[0], cache)


def test_layers_of_transformers(rng: np.random.Generator) -> None:
    x, w1, w2 = normal(rng, 2, 3, 4), normal(rng, 4, 6), normal(rng, 6, 4)
    b1, b2, scale, shift = normal(rng, 6), normal(rng, 4), normal(rng, 4), normal(rng, 4)
    close(op("fused_gemm_epilogue", x, w1, b1, activation="relu")[0], np.maximum(x @ w1 + b1, 0))
    given = {"act_method": "relu", "dropout1_rate": 0.0, "dropout2_rate": 0.0}
    inner = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    out = op("fused_feedforward", x, w1, w2, None, None, b1, b2, None, None, scale, shift, **given)[0]
    close(out, layer_norm(x + inner, scale, shift))
    before = np.maximum(layer_norm(x, scale, shift) @ w1 + b1, 0) @ w2 + b2
    out = op("fused_feedforward", x, w1, w2, None, None, b1, b2, scale, shift, pre_layer_norm=True, **given)[0]
    close(out, x + before)
    weights, bias, mask = normal(rng, 3, 2, 2, 4), normal(rng, 3, 2, 2), normal(rng, 2, 1, 3, 3)
    q, k, v = np.einsum("ble,cnse->cbnls", x, weights) + bias[:, None, :, None]
    mixed = attention(q, k, v, 2**-0.5, mask).swapaxes(1, 2).reshape(2, 3, 4)
    given = {"attn_dropout_rate": 0.0, "dropout_rate": 0.0}
    y = op("fused_attention", x, weights, w1[:, :4], None, None, bias, None, mask, b2, scale, shift, **given)[-1]
    close(y, layer_norm(x + mixed @ w1[:, :4] + b2, scale, shift))
    together, beside = np.moveaxis(weights, 3, 0), bias.reshape(3, 4)
    out = op("multihead_matmul", x, together.reshape(4, 3, 4), beside, mask, alpha=0.5, head_number=2)
    close(out, attention(q, k, v, 0.5, mask).swapaxes(1, 2).reshape(2, 3, 4))


@pytest.mark.parametrize("arch", [70, 80])
@pytest.mark.parametrize("bits", [8, 4])
def test_products_with_kept_weights(rng: np.random.Generator, bits: int, arch: int) -> None:
    """``weight_quantize`` is recorded from Paddle; its reader gives back what it kept."""
    x, w, bias = normal(rng, 2, 3, 64), normal(rng, 64, 128).astype("float16"), normal(rng, 128)
    kept, scale = op("weight_quantize", w, algo=f"weight_only_int{bits}", arch=arch)
    step = np.asarray(scale, "float32")
    bound = 2 ** (bits - 1) - 1
    numbers = np.clip(np.sign(w) * np.floor(np.abs(w.astype("float32")) / step + 0.5), -bound, bound)
    out = op("weight_only_linear", x, kept, step, bias, weight_dtype=f"int{bits}", arch=arch)
    np.testing.assert_allclose(out, x @ (numbers * step) + bias, rtol=1e-4, atol=1e-4)
    if arch == 80:
        back = op("weight_dequantize", kept, scale, algo=f"weight_only_int{bits}", out_dtype=5)
        close(back, numbers * step)


def test_products_of_integers_with_columns_apart(rng: np.random.Generator) -> None:
    x, w = normal(rng, 3, 16), normal(rng, 16, 5).astype("float16")
    x[1, 4] = 9.0
    kept, scale = op("weight_quantize", w, algo="llm.int8")
    matrix = np.asarray(kept, "float32").T * np.asarray(scale, "float32")
    near = np.where(np.arange(16) == 4, 0, x)
    step = np.abs(near).max(1, keepdims=True) / 127
    wanted = (np.sign(near) * np.floor(np.abs(near) / step + 0.5)) * step @ matrix + x[:, 4:5] * matrix[4]
    np.testing.assert_allclose(op("llm_int8_linear", x, kept, scale), wanted, rtol=1e-4, atol=1e-4)


def test_one_of_the_likeliest_is_drawn() -> None:
    """Of 4000 draws, each of the likeliest comes up as often as its share; the run's seed or the op's own decides."""
    rows = np.tile(np.array([[0.1, 0.5, 0.15, 0.25]], "float32"), (4000, 1))
    feeds = {"x": rows, "ps": np.full(4000, 0.6, "float32"), "floor": np.full(4000, 0.3, "float32")}
    program = fluid.Program()
    block = program.global_block()
    for name, value in feeds.items():
        block.create_var(name=name, shape=value.shape, dtype="float32")
    wanted = []
    for name, seed in {"run": -1, "own": 5, "floored": -1}.items():
        block.create_var(name=name, dtype="float32")
        wanted.append(block.create_var(name=f"{name}_ids", dtype="int64"))
        inputs = {"x": ["x"], "ps": ["ps"], "threshold": ["floor"] if name == "floored" else []}
        block.append_op("top_p_sampling", inputs, {"out": [name], "ids": [f"{name}_ids"]}, {"seed": seed})

    def drawn(seed: int) -> list[np.ndarray]:
        program.random_seed = seed
        return fluid.Executor(fluid.CPUPlace()).run(program, feeds, [*wanted, "run"], scope=fluid.Scope())

    run, own, floored, values = drawn(3)
    np.testing.assert_array_equal(values, np.take_along_axis(rows, run, 1))
    np.testing.assert_allclose(np.bincount(run[:, 0], minlength=4) / 4000, [0, 0.5 / 0.6, 0, 0.1 / 0.6], atol=0.03)
    assert (floored == 1).all()
    other = drawn(4)
    assert (other[0] != run).any()
    np.testing.assert_array_equal(other[1], own)


def test_views_of_memory(rng: np.random.Generator) -> None:
    x = normal(rng, 2, 3, 4)
    moved = np.lib.stride_tricks.as_strided(x.reshape(-1)[1:], (3, 2), (4 * 5, 4))
    np.testing.assert_array_equal(op("as_strided", x, dims=[3, 2], stride=[5, 1], offset=4), moved)
    windows = np.lib.stride_tricks.sliding_window_view(x, 2, 1)[:, ::1]
    np.testing.assert_array_equal(op("tensor_unfold", x, axis=1, size=2, step=1), windows)
    np.testing.assert_array_equal(op("view_shape", x, dims=[-1, 6]), x.reshape(-1, 6))
    with jax.enable_x64(True):
        for kind, number in {"int16": 1, "int32": 2, "float64": 6}.items():
            np.testing.assert_array_equal(op("view_dtype", x, dtype=number), x.view(kind))
    np.testing.assert_array_equal(op("index_select_strided", x, index=1, axis=1), x[:, 1])
    with pytest.raises(ValueError, match="places 0 to 33 of 24 numbers"):
        op("as_strided", x, dims=[12], stride=[3])


def test_memory_efficient_attention(rng: np.random.Generator) -> None:
    q, k, v, bias = *(normal(rng, 2, 5, 3, 4) for _ in range(3)), normal(rng, 2, 3, 5, 5)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * 0.3 + bias
    out, lse, _ = op("memory_efficient_attention", q, k, v, bias, scale=0.3)
    close(out, np.einsum("bhqk,bkhd->bqhd", softmax(scores), v))
    close(lse, np.log(np.exp(scores).sum(-1)))
    scores = np.where(np.tril(np.ones((5, 5))) > 0, (scores - bias) / 0.3 / 2, -np.inf)
    out, *_ = op("memory_efficient_attention", q, k, v, scale=-1.0, causal=True)
    close(out, np.einsum("bhqk,bkhd->bqhd", softmax(scores), v))
    with pytest.raises(ValueError, match="joined sequences"):
        op("memory_efficient_attention", q, k, v, None, np.array([0, 2, 5], "int32"), scale=-1.0)
    with pytest.raises(ValueError, match="dropout"):
        op("memory_efficient_attention", q, k, v, scale=-1.0, dropout_p=0.1)
    with pytest.raises(ValueError, match="as many"):
        op("memory_efficient_attention", q[:, :3], k, v, scale=-1.0, causal=True)
