"""Products of few rows in a room for more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
from lowering.ragged.used import of_used_rows


def _computed(capacity, nrows, x):
    """(what ``of_used_rows`` gives for the sums of rows, for how many rows the run computed them)."""
    ran = []

    def sums(rows):
        jax.debug.callback(lambda count=rows.shape[0]: ran.append(count))
        return rows.sum(axis=1, keepdims=True)

    found = jax.jit(lambda x, n: of_used_rows(sums, x, n))(x[:capacity], np.int32(nrows))
    return np.asarray(jax.block_until_ready(found)), ran


@pytest.mark.parametrize(
    ("capacity", "nrows", "computed"),
    [(64, 16, 16), (64, 17, 32), (64, 32, 32), (64, 33, 64), (64, 0, 16), (32, 8, 8), (24, 1, 24), (96, 1, 96)],
)
def test_a_quarter_or_a_half_of_the_room_is_computed_where_it_suffices(rng, capacity, nrows, computed):
    x = jnp.asarray(rng.integers(0, 9, (96, 3)).astype("float32"))
    found, ran = _computed(capacity, nrows, x)
    jax.effects_barrier()
    assert ran == [computed]
    wanted = np.array(x[:capacity].sum(axis=1, keepdims=True))
    wanted[computed:] = wanted[0]
    np.testing.assert_array_equal(found, wanted)


def test_rows_of_a_product_do_not_depend_on_the_room(rng):
    """One executable serves batches of a quarter, a half and all of its room, and what follows sees no padding."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 256], "float32", lod_level=1)
        product = fluid.layers.fc(x, 128, bias_attr=False, param_attr=fluid.ParamAttr(name="w"))
        fetched = [product, fluid.layers.sequence_pool(product, "sum")]
    exe, place = fluid.Executor(fluid.CPUPlace()), fluid.CPUPlace()
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        weight = rng.integers(-3, 4, (256, 128)).astype("float32")
        fluid.global_scope().find_var("w").get_tensor().set(weight, place)
        for lengths in ([40], [10, 6], [12, 5], [20, 13], [3]):
            rows = rng.integers(-3, 4, (sum(lengths), 256)).astype("float32")
            fed = {"x": fluid.create_lod_tensor(rows, [lengths], place)}
            found = [np.array(v) for v in exe.run(main, feed=fed, fetch_list=fetched, return_numpy=False)]
            np.testing.assert_array_equal(found[0], rows @ weight)
            ends = np.cumsum(lengths)[:-1]
            np.testing.assert_array_equal(found[1], [p.sum(axis=0) for p in np.split(rows @ weight, ends)])
