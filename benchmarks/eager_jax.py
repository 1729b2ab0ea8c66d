"""The nets of ``eager_models`` as a JAX user writes them: one jitted step, state given away."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import eager_models as models

_draw = np.random.RandomState(0)


def _weight(*shape):
    return jnp.asarray(_draw.uniform(-0.1, 0.1, shape).astype("float32"))


def _linear(width, size):
    return _weight(width, size), jnp.zeros([size])


def _apply(layer, x):
    return x @ layer[0] + layer[1]


def _cross_entropy(logits, label):
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), label, -1)
    return -picked.mean()


def _adam(params, grads, state, rate=0.001):
    m, v, t = state
    t = t + 1
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
    v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, grads)
    scale = rate * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return jax.tree.map(lambda p, a, b: p - scale * a / (jnp.sqrt(b) + 1e-8), params, m, v), (m, v, t)


def _trained(loss, params, batch):
    """A step of Adam on `loss` of parameters and batch."""

    def update(params, state, *batch):
        value, grads = jax.value_and_grad(loss)(params, *batch)
        return (*_adam(params, grads, state), value)

    step = jax.jit(update, donate_argnums=(0, 1))
    held = [params, (jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params), jnp.float32(0))]
    batch = [a.astype("int32") if a.dtype == np.int64 else a for a in batch]

    def run():
        held[0], held[1], value = step(*held, *batch)
        return np.asarray(value)

    return run


def mlp():
    """64-128-128-10."""

    def loss(params, x, label):
        for layer in params[:-1]:
            x = jax.nn.relu(_apply(layer, x))
        return _cross_entropy(_apply(params[-1], x), label)

    return _trained(loss, [_linear(64, 128), _linear(128, 128), _linear(128, 10)], models.MLP_BATCH)


def dqn():
    """4-16-16-3 and a target that stays."""
    target = [_linear(4, 16), _linear(16, 16), _linear(16, 3)]

    def value(params, x):
        for layer in params[:-1]:
            x = jax.nn.relu(_apply(layer, x))
        return _apply(params[-1], x)

    def loss(params, state, action, reward, after):
        wanted = reward + 0.9 * value(target, after).max(1, keepdims=True)
        taken = jnp.take_along_axis(value(params, state), action, 1)
        return ((taken - wanted) ** 2).mean()

    return _trained(loss, [_linear(4, 16), _linear(16, 16), _linear(16, 3)], models.DQN_BATCH)


def cnn():
    """Two convolutions and pools."""

    def pool(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def loss(params, x, label):
        for kernel, bias in params[:2]:
            x = pool(jax.nn.relu(jax.lax.conv(x, kernel, (1, 1), "VALID") + bias[:, None, None]))
        return _cross_entropy(_apply(params[2], x.reshape(-1, 200)), label)

    params = [(_weight(6, 1, 5, 5), jnp.zeros([6])), (_weight(8, 6, 3, 3), jnp.zeros([8])), _linear(200, 10)]
    return _trained(loss, params, models.CNN_BATCH)


def transformer():
    """Two encoder blocks."""

    def norm(p, x):
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p[0] + p[1]

    def block(p, x):
        q, k, v = [_apply(p[n], x).reshape(8, 10, 4, 16).transpose(0, 2, 1, 3) for n in "qkv"]
        mixed = jax.nn.softmax(q @ k.swapaxes(2, 3) * 0.25) @ v
        x = norm(p["one"], x + _apply(p["o"], mixed.transpose(0, 2, 1, 3).reshape(8, 10, 64)))
        return norm(p["two"], x + _apply(p["down"], jax.nn.relu(_apply(p["up"], x))))

    def make():
        found = {n: _linear(64, 64) for n in "qkvo"}
        found |= {n: (jnp.ones([64]), jnp.zeros([64])) for n in ("one", "two")}
        return found | {"up": _linear(64, 256), "down": _linear(256, 64)}

    def loss(params, x, label):
        return _cross_entropy(_apply(params[2], block(params[1], block(params[0], x)).mean(1)), label)

    return _trained(loss, [make(), make(), _linear(64, 10)], models.TRANSFORMER_BATCH)


def lstm():
    """35 steps written out, as the eager net does; SGD with a global norm clip."""

    def loss(params, words, labels):
        table, gates, out = params
        x = table[words]
        state = [(jnp.zeros([4, 64]), jnp.zeros([4, 64]))] * 2
        outputs = []
        for t in range(35):
            h = x[:, t]
            for k in range(2):
                i, j, f, o = jnp.split(_apply(gates[k], jnp.concatenate([h, state[k][0]], 1)), 4, 1)
                c = state[k][1] * jax.nn.sigmoid(f + 1) + jax.nn.sigmoid(i) * jnp.tanh(j)
                h = jnp.tanh(c) * jax.nn.sigmoid(o)
                state[k] = (h, c)
            outputs.append(h)
        return _cross_entropy(_apply(out, jnp.stack(outputs, 1)), labels)

    @jax.jit
    def step(params, words, labels):
        value, grads = jax.value_and_grad(loss)(params, words, labels)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        return jax.tree.map(lambda p, g: p - 0.5 * g * 5 / jnp.maximum(norm, 5), params, grads), value

    held = [(_weight(1000, 64), [_linear(128, 256), _linear(128, 256)], _linear(64, 1000))]
    words, labels = [a.astype("int32") for a in models.LSTM_BATCH]

    def run():
        held[0], value = step(held[0], words, labels)
        return np.asarray(value)

    return run


def adds():
    """The chain as one function."""

    @jax.jit
    def grad(x, c):
        return jax.grad(lambda x: sum([c] * 200, x).sum())(x)

    x = np.ones([2, 2], "float32")
    return lambda: np.asarray(grad(x, x))


MODELS = {f.__name__: f for f in (mlp, cnn, lstm, transformer, dqn, adds)}
