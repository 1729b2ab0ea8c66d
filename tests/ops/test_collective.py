"""Collectives over a mapped axis of three devices against NumPy; gradients against ``jax.vjp`` and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowering
from lowering import OpView
from lowering.mesh import AXIS
from lowering.program import GRAD, BlockView, ProgramView

DEVICES, SHAPE = 3, (6, 2)
REDUCED = {
    "c_allreduce_sum": np.sum,
    "c_allreduce_max": np.max,
    "c_allreduce_min": np.min,
    "c_allreduce_prod": np.prod,
}
SUMMED = {"c_allreduce_sum": "c_allreduce_sum", "c_allgather": "c_reducescatter"}  # op -> its gradient op
JOINING = {"mp_allreduce_sum": "c_identity", "c_concat": "c_split"}  # from parts to what all devices have
PARTING = {"c_identity": "c_allreduce_sum", "c_split": "c_concat"}  # and back
PROVEN = SUMMED | JOINING | PARTING


def view(op_type, source="x", target="out", **attrs):
    return OpView(op_type, {"X": [source]}, {"Out": [target]}, lowering.check_attrs(op_type, attrs))


def over_devices(op, x):
    """The op on each device's part x[i]."""
    program = ProgramView((BlockView(0, -1, (op,), {}),))

    def one(part):
        return lowering.Runner(program, key=None).run_op(op, {op.inputs["X"][0]: part})[op.outputs["Out"][0]]

    return jax.vmap(one, axis_name=AXIS)(x)


@pytest.mark.parametrize("op_type", sorted(REDUCED))
def test_reductions(op_type, rng):
    x = rng.standard_normal((DEVICES, *SHAPE))
    with jax.enable_x64(True):
        out = over_devices(view(op_type), jnp.asarray(x))
    want = np.broadcast_to(REDUCED[op_type](x, axis=0), x.shape)
    np.testing.assert_allclose(out, want, rtol=1e-12)


@pytest.mark.parametrize("op_type", sorted(REDUCED))
def test_small_integers_stay_small(op_type, rng):
    x = rng.integers(-5, 6, (DEVICES, *SHAPE)).astype(np.int32)
    with jax.enable_x64(True):
        out = over_devices(view(op_type), jnp.asarray(x))
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out, np.broadcast_to(REDUCED[op_type](x, axis=0), x.shape))


def test_gather_scatter_and_broadcast(rng):
    x = rng.standard_normal((DEVICES, *SHAPE))
    with jax.enable_x64(True):
        gathered = over_devices(view("c_allgather", nranks=DEVICES), jnp.asarray(x))
        shares = over_devices(view("c_reducescatter", nranks=DEVICES), jnp.asarray(x))
        sent = over_devices(view("c_broadcast", root=1), jnp.asarray(x))
    np.testing.assert_array_equal(gathered, np.broadcast_to(x.reshape(-1, 2), (DEVICES, DEVICES * 6, 2)))
    np.testing.assert_allclose(shares, x.sum(0).reshape(DEVICES, 2, 2), rtol=1e-12)
    np.testing.assert_array_equal(sent, np.broadcast_to(x[1], x.shape))


@pytest.mark.parametrize("op_type", sorted(SUMMED))
def test_gradient(op_type, rng):
    """What each device sends back adds up to the derivative of the sum of all devices' losses."""
    op = view(op_type, **({"nranks": DEVICES} if op_type == "c_allgather" else {}))
    (spec,), _ = lowering.grad_ops(op)
    assert spec.type == SUMMED[op_type]
    grad_op = OpView(spec.type, spec.inputs, spec.outputs, spec.attrs)
    assert grad_op.inputs["X"] == ["out" + GRAD] and grad_op.outputs["Out"] == ["x" + GRAD]
    x = rng.standard_normal((DEVICES, *SHAPE))
    with jax.enable_x64(True):
        out, pull = jax.vjp(lambda v: over_devices(op, v), jnp.asarray(x))
        weights, direction = rng.standard_normal(out.shape), rng.standard_normal(x.shape)
        ours = np.asarray(over_devices(grad_op, jnp.asarray(weights)))
        np.testing.assert_allclose(ours, pull(jnp.asarray(weights))[0], rtol=1e-12)
        ends = [float(jnp.sum(over_devices(op, x + s * direction) * weights)) for s in (1e-4, -1e-4)]
    assert float(np.sum(ours * direction)) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-6)


def gradient_of(op, expected):
    (spec,), _ = lowering.grad_ops(op)
    assert spec.type == expected
    return OpView(spec.type, spec.inputs, spec.outputs, spec.attrs)


@pytest.mark.parametrize("op_type", sorted(JOINING))
def test_a_loss_that_all_devices_have_is_counted_once(op_type, rng):
    op = view(op_type)
    x = rng.standard_normal((DEVICES, *SHAPE))
    with jax.enable_x64(True):
        out, pull = jax.vjp(lambda v: over_devices(op, v), jnp.asarray(x))
        np.testing.assert_array_equal(out, np.broadcast_to(out[0], out.shape))
        weights = jnp.asarray(rng.standard_normal(out.shape[1:]))
        ours = over_devices(gradient_of(op, JOINING[op_type]), jnp.broadcast_to(weights, out.shape))
        np.testing.assert_allclose(ours, pull(jnp.zeros_like(out).at[0].set(weights))[0], rtol=1e-12)


@pytest.mark.parametrize("op_type", sorted(PARTING))
def test_what_all_devices_have_takes_the_gradients_of_all(op_type, rng):
    op = view(op_type)
    with jax.enable_x64(True):
        x = jnp.asarray(rng.standard_normal((2, 6)))
        spread = lambda v: over_devices(op, jnp.broadcast_to(v, (DEVICES, *v.shape)))  # noqa: E731
        out, pull = jax.vjp(spread, x)
        weights = jnp.asarray(rng.standard_normal(out.shape))
        ours = over_devices(gradient_of(op, PARTING[op_type]), weights)
        np.testing.assert_allclose(ours, jnp.broadcast_to(pull(weights)[0], ours.shape), rtol=1e-12)


@pytest.mark.parametrize(
    "op_type",
    [*sorted(REDUCED), "c_allgather", "c_reducescatter", "c_broadcast", *sorted(JOINING), *sorted(PARTING)],
)
def test_one_device_alone_is_the_identity(op_type, rng):
    x = rng.standard_normal(SHAPE)
    op = view(op_type, **({"nranks": 1} if op_type == "c_allgather" else {}))
    program = ProgramView((BlockView(0, -1, (op,), {}),))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(lowering.Runner(program, key=None).run_op(op, {"x": x})["out"], x)
