"""A While over an array that was written element by element: its gradient goes back to each element."""

import jax
import jax.numpy as jnp
import numpy as np

import fluidjax as fluid
from fluidjax import layers
from tests.control_flow.running import build, run

STEPS, ROWS, SIZE = 3, 2, 4


def network():
    x = fluid.data("x", [STEPS, ROWS, SIZE], "float32")
    x.stop_gradient = False
    step, limit = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", STEPS)
    memory, inputs = layers.array_write(layers.fill_constant([ROWS, SIZE], "float32", 0), step), None
    for i in range(STEPS):
        row = layers.reshape(layers.slice(x, [0], [i], [i + 1]), [ROWS, SIZE])
        inputs = layers.array_write(row, layers.fill_constant([1], "int64", i), inputs)
    w = layers.create_parameter([SIZE, SIZE], "float32", name="w")
    running = layers.less_than(step, limit)
    loop = layers.While(running)
    with loop.block():
        total = layers.elementwise_add(layers.array_read(inputs, step), layers.array_read(memory, step))
        after = layers.tanh(layers.matmul(total, w))
        layers.increment(step, 1, in_place=True)
        layers.array_write(after, step, memory)
        layers.less_than(step, limit, cond=running)
    loss = layers.mean(layers.array_read(memory, limit))
    return [loss, *fluid.gradients([loss], [x, w])]


def test_equals_jax_grad(rng):
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((STEPS, ROWS, SIZE), (SIZE, SIZE)))
    main, startup, fetch = build(network)
    loss, d_x, d_w = run(main, startup, {"x": x}, fetch, {"w": w})

    def forward(x, w):
        h = jnp.zeros((ROWS, SIZE), jnp.float32)
        for row in x:
            h = jnp.tanh((row + h) @ w)
        return h.mean()

    value, (want_x, want_w) = jax.value_and_grad(forward, (0, 1))(x, w)
    np.testing.assert_allclose(loss, [value], rtol=1e-5)
    np.testing.assert_allclose(d_x, want_x, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(d_w, want_w, rtol=1e-5, atol=1e-6)
