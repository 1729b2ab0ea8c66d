"""Primitives that JAX makes of others only where it compiles are entered by what reads a trace: as these others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import hijax

import fluidjax as fluid
from fluidjax.eager.first.evaluator import Evaluator, Meter
from fluidjax.export import to_jax
from fluidjax.export.c import trace
from fluidjax.export.double import in_double
from fluidjax.export.graph import graph_of, walk
from lowering.engine.x64 import in_x64, with_x64

HiPrim = getattr(hijax, "HiPrim", None) or getattr(hijax, "VJPHiPrimitive", None)  # before jax 0.11
X = np.array([0.0, -0.0, 0.3, -1.5, 2.5, 100.0, np.inf, -np.inf, np.nan], "float32")


def composed(x):
    """x^2 / 3 + 1 by a primitive of its own."""

    class Composed(HiPrim):
        def __init__(self, aval):
            self.in_avals, self.out_aval, self.params = (aval,), aval, {}
            super().__init__()

        def expand(self, x):
            return x * x / 3 + 1

    return Composed(jax.typeof(x))(x)


def polynomial(*coefficients):
    """With numbers that are written into the trace, and one that is not."""
    return lambda x: lax.polynomial(x, [*coefficients, jnp.sum(x[:2]) + 2])


FUNCTIONS = {}
if HiPrim is not None:
    FUNCTIONS["a primitive of one's own"] = composed
if hasattr(lax, "polynomial"):  # since jax 0.12
    FUNCTIONS |= {"short": polynomial(1.0, 0.5, 0.0, 0.125), "long": polynomial(*(np.arange(12) / 8))}


@pytest.fixture(params=FUNCTIONS)
def function(request):
    """A function whose jaxpr has an equation that is made of others."""
    return FUNCTIONS[request.param]


def test_a_graph_has_what_they_are_made_of(function):
    closed = with_x64(jax.make_jaxpr(function), X)
    composite = {"call_hi_primitive", "polynomial"}
    assert composite & {e.primitive.name for e in closed.jaxpr.eqns}
    prims = {node.prim for node in walk(graph_of(closed))}
    assert {"mul", "add"} <= prims
    assert not composite & prims


@in_x64
def test_numpy_computes_them(function):
    evaluator = Evaluator(jax.make_jaxpr(function)(X), Meter())
    with np.errstate(all="ignore"):
        (found,) = evaluator.run([X])
    wanted = np.asarray(jax.jit(function)(X))
    finite = np.isfinite(X)
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=1e-6)
    assert found.dtype == wanted.dtype
    assert np.isfinite(found[finite]).all()
    assert not np.isfinite(found[~finite]).any()


def test_they_are_computed_in_float64(function):
    x = X[2:5]
    exact = in_double(function, x)(x)
    with jax.enable_x64(True):
        wanted = function(jnp.asarray(x, np.float64))
    assert exact.dtype == np.float64
    np.testing.assert_allclose(exact, wanted, rtol=1e-14)


def test_c_knows_the_gradient_of_gelu_and_searching():
    x = fluid.data("x", [2, 3])
    found = fluid.default_main_program().global_block().create_var(name="found", dtype="int64")
    rows = fluid.layers.fc(x, 3)
    fluid.default_main_program().global_block().append_op(
        "searchsorted", inputs={"SortedSequence": rows, "Values": x}, outputs={"Out": found}
    )
    loss = fluid.layers.mean(fluid.layers.gelu(rows))
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    function, parameters = to_jax(fluid.default_main_program(), ["x"], [loss, found], platform="cpu")
    traced = trace(function, parameters, {"x": np.zeros((2, 3), "float32")}, True)
    assert traced.replaced
    assert {"erfc", "scan"} <= {node.prim for node in walk(traced.body)}
