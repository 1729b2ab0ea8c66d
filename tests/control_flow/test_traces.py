"""What a loop's step gives does not depend on how often it was traced."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import fluidjax as fluid
from lowering.loops.save_plan import SavePlan
from lowering.loops.saves import Recorder
from lowering.ops.nn import conv_kernels as kernels
from tests.control_flow.running import build, run

layers = fluid.layers


def drawing(settled: bool):
    """Four random numbers drawn in a loop's steps; unless ``settled`` its body is traced once more for ``late``."""

    def network():
        i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 4)
        drawn = layers.array_write(layers.fill_constant([1], "float32", 0.0), i)
        more = layers.less_than(i, n)
        late = fluid.default_main_program().global_block().create_var(name="late", shape=[1], dtype="float32")
        with layers.While(more).block():
            number = layers.uniform_random([1], "float32", 0.0, 1.0)
            layers.array_write(number, i, drawn)
            if not settled:
                layers.assign(number, late)
            layers.increment(i)
            layers.less_than(i, n, cond=more)
        return [layers.array_read(drawn, layers.fill_constant([1], "int64", k)) for k in range(4)]

    main, startup, fetch = build(network)
    main.random_seed = 7
    return main, startup, fetch


@pytest.mark.parametrize("settled", [True, False])
def test_a_loop_draws_the_same_however_it_is_run(settled: bool) -> None:
    """Compiled and op by op, and whether its structure settles in one round of tracing or in two."""
    compiled = np.concatenate(run(*drawing(settled)[:2], {}, drawing_fetch(settled)))
    stepped = np.concatenate(run(*drawing(settled)[:2], {}, drawing_fetch(settled), interpret=True))
    np.testing.assert_array_equal(compiled, stepped)
    np.testing.assert_array_equal(compiled, np.concatenate(run(*drawing(True)[:2], {}, drawing_fetch(True))))
    assert len(set(compiled.tolist())) == 4


def drawing_fetch(settled: bool) -> list[str]:
    return [v.name for v in drawing(settled)[2]]


def test_a_value_known_in_an_early_trace_only_is_saved_of_each_step() -> None:
    """The structure of a loop settles in several traces; what the first one knew must not stand for all steps."""
    recorder = Recorder(SavePlan(final=["h"]))
    assert recorder.run(None, [], {"h": np.ones(2)}) == {}
    assert recorder.constants.keys() == {"h"}

    def later(h):
        kept = recorder.run(None, [], {"h": h})
        assert kept.keys() == {"h"} and recorder.constants == {}
        return kept

    jax.eval_shape(later, np.ones(2))


@pytest.mark.parametrize("platform, convolutions", [("cpu", 0), ("cuda", 3)])
def test_a_convolution_is_chosen_by_the_platform_that_is_compiled_for(platform: str, convolutions: int) -> None:
    """A pointwise kernel and its gradients: products on CPU, XLA's convolutions elsewhere, whatever runs here."""
    geo = kernels.Geometry((1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    x, w, dy = np.ones((2, 3, 4, 4)), np.ones((5, 3, 1, 1)), np.ones((2, 5, 4, 4))

    def three(x, w, dy):
        grads = kernels.input_grad(dy, w, x.shape, geo), kernels.filter_grad(x, dy, w.shape, geo)
        return kernels.forward(x, w, geo), *grads

    text = jax.jit(three).trace(x, w, dy).lower(lowering_platforms=(platform,)).as_text()
    assert text.count("stablehlo.convolution") == convolutions
