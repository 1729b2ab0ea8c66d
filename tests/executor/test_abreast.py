"""What a step does alike to many parts of an array runs once, with the same results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.steps import compiled
from fluidjax.execution.steps.abreast import abreast

PAIRS = [(i, j) for i in range(9) for j in range(i + 1, 9)]  # 36


def part(x, i):
    return jax.lax.squeeze(jax.lax.slice_in_dim(x, i, i + 1, axis=1), (1,))


def products(x):
    return [part(x, i) * jnp.exp(part(x, j)) for i, j in PAIRS]


def padded(x, before, after):
    return jax.lax.pad(x, np.float32(0), [(0, 0, 0), (before, after, 0), (0, 0, 0)])


def pieces(x, size, step):
    """Parts of the second axis, of 9, at multiples of ``step``, each among zeros at another multiple."""
    last = (9 - size) // step
    for i, j in PAIRS:
        begin, to = i % (last + 1) * step, j % (last + 1) * step
        part = jax.lax.slice_in_dim(x, begin, begin + size, axis=1)
        yield padded(part * part, to, 9 - size - to)


def split(x):
    parts = jax.lax.split(jnp.tile(x, (1, 4, 1)), [1] * 36, axis=1)
    return jnp.concatenate([2 * p + parts[0] for p in parts], 1)


def mixed(x):
    return jnp.concatenate([x[:, 0], *products(x), jnp.tanh(x[:, 1])], 0)


def alone(x):
    return jnp.stack([jnp.sin(x) for _ in range(40)])


def wide(x):
    flat = x.reshape(-1)
    return jnp.stack([flat[i : i + 5] - flat[3 * i : 3 * i + 5] for i in range(32)], 1)


TOGETHER = {
    "stack": lambda x: jnp.stack(products(x), 1),
    "concatenate": lambda x: jnp.concatenate(products(x), 1),
    "split": split,
    "mixed": mixed,
    "alone": alone,
    "wide": wide,
    "reduced": lambda x: jnp.stack([p.max(1) for p in products(x)]),
    "sum": lambda x: sum(pieces(x, 1, 1), 0 * x),
    "sum_of_threes": lambda x: sum(pieces(x, 3, 3), 0 * x),
    "sum_and_more": lambda x: sum([x, *pieces(x, 1, 1), 2 * x]),
}


def recurrence(x):
    states = [part(x, 0)]
    for _ in range(40):
        states.append(jnp.tanh(states[-1]))
    return jnp.stack(states)


APART = {
    "recurrence": recurrence,
    "few": lambda x: jnp.stack(products(x)[:31]),
    "unlike": lambda x: jnp.stack([jnp.cos(p) if i % 2 else jnp.sin(p) for i, p in enumerate(products(x))]),
    "uneven": lambda x: sum([padded(p[:, None], 0, 8) for p in products(x)]),
    "overlapping": lambda x: sum(pieces(x, 3, 2), 0 * x),
}


def both(function, random):
    x = random.rand(3, 9, 4).astype("float32")
    traced = jax.jit(function).trace(x)
    changed = abreast(traced, (x,), ())
    return traced, changed, function(x), changed.lower().compile()(x)


@pytest.mark.parametrize("name", TOGETHER)
def test_what_is_alike_is_done_at_once(name):
    before, after, expected, received = both(TOGETHER[name], np.random.RandomState())
    assert len(after.jaxpr.eqns) < 30 < len(before.jaxpr.eqns)
    assert after.out_info == before.out_info
    np.testing.assert_allclose(received, expected, rtol=1e-6)


@pytest.mark.parametrize("name", APART)
def test_what_is_not_alike_is_left(name):
    traced = jax.jit(APART[name]).trace(np.zeros((3, 9, 4), "float32"))
    assert abreast(traced, (), ()) is traced


def test_a_net_over_all_pairs_of_fields_learns_the_same(monkeypatch):
    def run():
        main, startup = fluid.Program(), fluid.Program()
        startup.random_seed = 1
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            ids = fluid.data("ids", [None, 9], "int64")
            fields = fluid.embedding(ids, [50, 4])
            pairs = [fields[:, i, :] * fields[:, j, :] for i, j in PAIRS]
            weights = fluid.layers.fc(fluid.layers.stack(pairs, 1), 1, num_flatten_dims=2)
            loss = fluid.layers.mean(fluid.layers.exp(weights))
            fluid.optimizer.Adam(0.1).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        feed = {"ids": np.arange(27).reshape(3, 9)}
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            return [exe.run(main, feed=feed, fetch_list=[loss, fields.name + "@GRAD"]) for _ in range(3)]

    sizes = []

    def counted(traced, *rest):
        changed = abreast(traced, *rest)
        sizes.append((len(traced.jaxpr.eqns), len(changed.jaxpr.eqns)))
        return changed

    monkeypatch.setattr(compiled, "abreast", counted)
    together = run()
    monkeypatch.setattr(compiled, "abreast", lambda traced, *_: traced)
    for one, other in zip(together, run(), strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-6)
        np.testing.assert_allclose(one[1], other[1], rtol=1e-5, atol=1e-8)
    assert sizes[-1][1] < sizes[-1][0] / 3
