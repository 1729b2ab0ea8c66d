"""Fake quantisation against its definition in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
import lowering


def run(type, *args, **attrs):
    with jax.enable_x64(True):
        return lowering.get_op(type)(*[jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in args], **attrs)


def quantize(x, scale, bits=8):
    bound = 2 ** (bits - 1) - 1
    return np.round(np.clip(x, -scale, scale) / scale * bound)


@pytest.mark.parametrize("bits", [8, 4])
def test_abs_max(rng, bits):
    x = rng.standard_normal((5, 7))
    out, scale = run("fake_quantize_abs_max", x, bit_length=bits)
    np.testing.assert_allclose(scale, [np.abs(x).max()])
    np.testing.assert_array_equal(out, quantize(x, np.abs(x).max(), bits))
    assert np.abs(out).max() == 2 ** (bits - 1) - 1


def test_halves_go_to_even():
    """Recorded from Paddle 1.8.5: what a mean over a window of quantised values is quantised to once more."""
    steps = np.array([-330, 306, -298, 82, 98, -74, 402, 508], np.float32)  # four of them to a quantum
    out, _ = lowering.get_op("fake_quantize_abs_max")(jnp.asarray(steps / 4 * np.float32(0.33)))
    np.testing.assert_array_equal(out, [-82, 76, -74, 20, 24, -18, 100, 127])


def test_all_zeros_stay_finite():
    out, scale = run("fake_quantize_abs_max", np.zeros((2, 2)))
    np.testing.assert_array_equal(out, np.zeros((2, 2)))
    np.testing.assert_array_equal(scale, [0])


def test_channels(rng):
    x = rng.standard_normal((4, 3, 2))
    out, scale = run("fake_channel_wise_quantize_abs_max", x)
    np.testing.assert_allclose(scale, np.abs(x).max(axis=(1, 2)))
    np.testing.assert_array_equal(out, quantize(x, np.abs(x).max(axis=(1, 2), keepdims=True)))


def test_moving_average(rng):
    x, accum, state = rng.standard_normal((5, 3)), np.array([4.0]), np.array([2.0])
    out, scale, new_state, new_accum = run(
        "fake_quantize_moving_average_abs_max", x, np.array([1.0]), accum, state, moving_rate=0.75
    )
    wanted = (0.75 * 4 + np.abs(x).max()) / (0.75 * 2 + 1)
    np.testing.assert_allclose([scale[0], new_state[0], new_accum[0]], [wanted, 2.5, 2.5 * wanted])
    np.testing.assert_array_equal(out, quantize(x, wanted))


def test_moving_average_there_and_back(rng):
    x, one = rng.uniform(-1, 1, (6, 4)), np.ones(1)
    out = run("fake_quantize_dequantize_moving_average_abs_max", x, one, None, None, is_test=True)[0]
    assert np.abs(np.asarray(out) - x).max() <= 0.5 / 127 + 1e-12
    assert np.abs(np.asarray(out) - x).max() > 0


def test_statistics_alone(rng):
    x = rng.standard_normal((3, 3))
    out, scale, state, accum = run("moving_average_abs_max_scale", x, np.ones(1), np.ones(1), moving_rate=0.5)
    np.testing.assert_array_equal(out, x)
    np.testing.assert_allclose(np.ravel([scale, state, accum])[1:], [1.5, 0.5 + np.abs(x).max()])
    np.testing.assert_allclose(scale, accum / state)


def test_range_is_the_maximum_of_a_window():
    main = fluid.Program()
    block, scope, executor = main.global_block(), fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    state = {"scale": np.array([0.001], np.float32), "iter": np.array([0]), "window": np.zeros(3, np.float32)}
    for name, value in state.items():
        block.create_var(name=name, shape=value.shape, dtype=str(value.dtype), persistable=True)
        scope.var(name).get_tensor().set(value, fluid.CPUPlace())
    x, out = block.create_var(name="x", shape=(2,), dtype="float32"), block.create_var(name="out")
    block.append_op(
        type="fake_quantize_range_abs_max",
        inputs={"X": [x], "InScale": ["scale"], "Iter": ["iter"]},
        outputs={"Out": [out], "OutScale": ["scale"], "OutScales": ["window"]},
        attrs={"window_size": 3},
    )
    block.append_op(type="increment", inputs={"X": ["iter"]}, outputs={"Out": ["iter"]}, attrs={"step": 1.0})
    largest = np.array([1, 3, 2, 0.5, 0.4, 0.3, 0.9], np.float32)
    for i, now in enumerate(largest):
        feed = {"x": np.array([now, -now / 2], np.float32)}
        found, scale = executor.run(main, feed=feed, fetch_list=["out", "scale"], scope=scope)
        wanted = largest[max(0, i - 2) : i + 1].max()
        np.testing.assert_array_equal(scale, [wanted])
        np.testing.assert_array_equal(found, quantize(feed["x"], wanted))


def test_dequantize_inverts(rng):
    x = rng.standard_normal((4, 6))
    out, scale = run("fake_quantize_abs_max", x)
    back = run("fake_dequantize_max_abs", np.asarray(out), np.asarray(scale), max_range=127.0)
    np.testing.assert_allclose(back, x, atol=np.abs(x).max() / 254 * 1.0001)


def test_dequantize_channels(rng):
    x, channel, whole = rng.standard_normal((2, 3, 4)), rng.uniform(1, 2, 3), np.array([1.5])
    one = run("fake_channel_wise_dequantize_max_abs", x, [jnp.asarray(channel[:2])])
    np.testing.assert_allclose(one, x * channel[:2, None, None] / 127)
    scales = [jnp.asarray(channel), jnp.asarray(whole)]
    two = run("fake_channel_wise_dequantize_max_abs", x, scales, quant_bits=[8, 4])
    np.testing.assert_allclose(two, x * channel[:, None] * 1.5 / (127 * 7))


def test_integers_to_floats():
    x = np.array([[-128, -1, 0, 5]], np.int8)
    np.testing.assert_allclose(
        run("dequantize_abs_max", x, np.array([2.0], np.float32), max_range=127.0), x.astype(np.float32) * 2 / 127
    )
    table = np.linspace(0, 1, 128, dtype=np.float32)
    np.testing.assert_array_equal(run("dequantize_log", x, table), [[-table[0], -table[127], table[0], table[5]]])


def test_bytes_for_numbers():
    """Halves go to even, and numbers beyond the type to its ends, as recorded from Paddle 1.8.5."""
    x = np.array([0.005, 0.015, 0.025, -0.005, -0.2, 1.5], np.float32)
    signed = run("quantize", x, Scale=100.0, is_negative_input=True)
    assert signed.dtype == np.int8 and signed.tolist() == [0, 2, 2, 0, -20, 127]
    unsigned = run("quantize", x, Scale=300.0)
    assert unsigned.dtype == np.uint8 and unsigned.tolist() == [2, 4, 8, 0, 0, 255]
    np.testing.assert_allclose(run("dequantize", signed, Scale=100.0), signed / np.float32(100), rtol=1e-6)
    assert run("requantize", np.array([40, -113, 41], np.int8), Scale_in=50.0, Scale_out=120.0).tolist() == [
        96,
        -128,
        98,
    ]
    assert run("requantize", np.array([5, 255], np.uint8), Scale_in=100.0, Scale_out=50.0).tolist() == [2, 128]
