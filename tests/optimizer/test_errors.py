"""Optimizers say what is wrong with their arguments."""

from __future__ import annotations

import pytest

import fluidjax as fluid
import lowering
from fluidjax import optimizer


def test_learning_rate_must_be_a_float() -> None:
    with pytest.raises(TypeError, match="learning_rate is 1 of type int; expected a float or a Variable"):
        optimizer.SGD(learning_rate=1)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Dpsgd", "Lamb"])
def test_a_rate_that_is_none_is_refused_as_paddle_refuses_it(name: str) -> None:
    with pytest.raises(AssertionError, match="learning_rate is not set"):
        getattr(optimizer, name)(learning_rate=None)


def test_grad_clip_must_be_a_clip() -> None:
    with pytest.raises(TypeError, match="grad_clip is 5.0 .* expected a GradientClipByValue"):
        optimizer.SGD(0.1, grad_clip=5.0)


def test_the_base_class_updates_nothing() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        w = fluid.layers.create_parameter([2], "float32", name="w")
        loss = fluid.layers.mean(w)
        with pytest.raises(TypeError, match="Optimizer updates nothing"):
            optimizer.Optimizer(0.1).minimize(loss)


def test_a_loss_of_many_elements() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        w = fluid.layers.create_parameter([2], "float32", name="w")
        with pytest.raises(ValueError, match=r"the loss .* has shape \(2,\); expected \(1,\)"):
            optimizer.SGD(0.1).minimize(fluid.layers.square(w))


def test_a_rate_of_another_program() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        rate = fluid.layers.exponential_decay(0.1, 10, 0.5)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = fluid.layers.mean(fluid.layers.create_parameter([2], "float32", name="w"))
        with pytest.raises(TypeError, match="belongs to another program"):
            optimizer.SGD(rate).minimize(loss)


@pytest.mark.parametrize(("alpha", "k", "text"), [(2.0, 5, "alpha is 2.0"), (0.5, 0, "k is 0")])
def test_lookahead_arguments(alpha: float, k: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        optimizer.LookaheadOptimizer(optimizer.SGD(0.1), alpha, k)


def test_recompute_without_checkpoints() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = fluid.layers.mean(fluid.layers.create_parameter([2], "float32", name="w"))
        wrapped = optimizer.RecomputeOptimizer(optimizer.SGD(0.1))
        with pytest.raises(ValueError, match="has no checkpoints"):
            wrapped.minimize(loss)
        with pytest.raises(TypeError, match="expected a list of Variables or names"):
            wrapped._set_checkpoints(loss)


def test_recompute_with_no_checkpoint_is_the_wrapped_optimizer() -> None:
    written = []
    for wrap in (lambda inner: inner, optimizer.RecomputeOptimizer):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            loss = fluid.layers.mean(fluid.layers.create_parameter([2], "float32", name="w"))
            chosen = wrap(optimizer.SGD(0.1))
            if wrap is optimizer.RecomputeOptimizer:
                chosen._set_checkpoints([])
            chosen.minimize(loss)
            written.append([op.type for op in loss.block.ops])
    assert written[0] == written[1] == ["mean", "fill_constant", "mean_grad", "sgd"]


def test_dgc_is_not_available() -> None:
    with pytest.raises(AssertionError, match="DGCMomentumOptimizer needs Fluid's CUDA build"):
        optimizer.DGCMomentumOptimizer(0.1, 0.9, rampup_begin_step=0)


def test_piecewise_decay_counts() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        with pytest.raises(ValueError, match="2 boundaries and 2 values"):
            fluid.layers.piecewise_decay([1, 2], [0.1, 0.2])


def test_weight_decay_arguments() -> None:
    decayed = fluid.contrib.extend_with_decoupled_weight_decay(optimizer.SGD)
    with pytest.raises(TypeError, match="coeff is 1 of type int"):
        decayed(weight_decay=1, learning_rate=0.1)
    with pytest.raises(TypeError, match="expected a class of fluid.optimizer"):
        fluid.contrib.extend_with_decoupled_weight_decay(optimizer.SGD(0.1))


def _append_sgd(gradient_shape: list[int]) -> fluid.framework.Operator:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        block = main.global_block()
        w = block.create_parameter(name="w", shape=[3, 2], dtype="float32")
        gradient = block.create_var(name="g", shape=gradient_shape, dtype="float32")
        rate = block.create_var(name="rate", shape=[1], dtype="float32")
        return block.append_op(
            "sgd", inputs={"Param": w, "Grad": gradient, "LearningRate": rate}, outputs={"ParamOut": w}
        )


def test_an_update_by_a_gradient_of_another_shape_is_refused_where_it_is_appended() -> None:
    with pytest.raises(lowering.OpError, match=r"op sgd: its inputs do not fit(.|\n)*Grad \[4, 2\]"):
        _append_sgd([4, 2])


def test_an_update_is_appended_without_tracing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def traced(*args: object) -> None:
        raise AssertionError("traced")

    monkeypatch.setattr(lowering.engine.shapes.infer, "_evaluate", traced)
    assert _append_sgd([3, 2]).block.var("w").shape == (3, 2)
    with pytest.raises(lowering.OpError, match="traced"):
        _append_sgd([3, 1])
