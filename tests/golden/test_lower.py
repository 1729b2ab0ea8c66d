"""Recorded programs lower for GPU and TPU, and what is chosen there gives the recorded numbers on the CPU too."""

import jax
import jax.extend.core
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from tests.golden.platforms import PLATFORMS, formulations, lowering_for, replay_as
from tests.golden.recordings import DATA
from tests.golden.zoocase import ZooCase

# Convolutions, batch norm and pools; sparse gradients; sequences; a loop and its gradient. The command does them all.
SMALL = ("book_recognize_digits_conv", "book_t_word2vec_sparse", "lod_expand", "ut_RecurrentOpTest1")


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", SMALL)
def test_a_recording_as_elsewhere(name, platform):
    replay, lowered = replay_as(ZooCase(DATA / "zoo" / name), platform)
    assert lowered > 0
    assert replay.report.passed, "\n".join([*replay.report.problems, replay.report.trace])


def doubled():
    x = fluid.data("x", [2, 3], "float32")
    return fluid.layers.scale(x, scale=2.0)


def test_rules_are_told_the_platform(monkeypatch):
    told = []
    rule = lowering.get_op("matmul")
    monkeypatch.setattr(rule, "fn", _noting(rule.fn, told))
    monkeypatch.setattr(rule, "special", rule.special | {"ctx"})
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [2, 3], "float32")
        y = fluid.layers.matmul(x, fluid.data("w", [3, 3], "float32"))
        feed = {"x": np.ones((2, 3), "float32"), "w": np.ones((3, 3), "float32")}
        told.clear()  # what shape inference was told
        for platform in ("gpu", "tpu"):
            with formulations(platform):
                fluid.Executor(fluid.CPUPlace()).run(y.block.program.clone(), feed=feed, fetch_list=[y.name])
    assert told == ["gpu", "tpu"]


def _noting(fn, told):
    return lambda *args, ctx, **attrs: told.append(ctx.platform) or fn(*args, **attrs)


def test_what_does_not_lower_is_an_error(monkeypatch):
    """A primitive that only the CPU has."""
    primitive = jax.extend.core.Primitive("only_here")
    primitive.def_abstract_eval(lambda x: x)
    jax.interpreters.mlir.register_lowering(primitive, lambda ctx, x: [x], platform="cpu")
    monkeypatch.setattr(lowering.get_op("scale"), "fn", lambda x, *_, **attrs: primitive.bind(x))
    feed = {"x": np.ones((2, 3), "float32")}
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        y = doubled()
        fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[y])
        with lowering_for("gpu"), pytest.raises(NotImplementedError, match="only_here"):
            fluid.Executor(fluid.CPUPlace()).run(y.block.program.clone(), feed=feed, fetch_list=[y.name])
