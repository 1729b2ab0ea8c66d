"""Names and arguments that Fluid had before 1.8, as scripts of those days use them."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest

import fluidjax as fluid

SCRIPT = """
from fluidjax.command import aliases
aliases.serve()
import paddle.v2 as paddle
import paddle.v2.fluid as fluid
import paddle.v2.fluid.layers as layers
from paddle.v2.fluid.param_attr import ParamAttr
from paddle.v2.fluid import debuger
import paddle.fluid
import paddle.fluid.imperative
from paddle.fluid.imperative.nn import Conv2D, FC
from paddle.fluid.contrib.trainer import Trainer, EndStepEvent
from paddle.fluid.concurrency import Go
from paddle.fluid.dygraph_grad_clip import GradClipByNorm
from paddle.fluid.distribute_transpiler import DistributeTranspiler
from paddle.fluid.memory_optimization_transpiler import memory_optimize
assert fluid is paddle.fluid and layers is fluid.layers and paddle.batch and paddle.v2 is paddle
assert debuger.draw_block_graphviz is fluid.debugger.draw_block_graphviz
assert paddle.fluid.imperative is fluid.dygraph and Trainer is fluid.Trainer
assert issubclass(GradClipByNorm, fluid.clip.GradientClipByNorm) and DistributeTranspiler is fluid.DistributeTranspiler
assert fluid.GPUPlace is fluid.CUDAPlace and not fluid.core.is_compile_gpu()
"""


def test_v2_packages() -> None:
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=900, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("keyword", ["clip", "gradient_clip"])
def test_a_parameters_own_clip(keyword: str) -> None:
    attr = fluid.ParamAttr(name="w", **{keyword: fluid.clip.GradientClipByValue(0.01)})
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 3], "float32")
        loss = fluid.layers.mean(fluid.layers.fc(x, 1, param_attr=attr))
        fluid.optimizer.SGD(1.0).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        before = np.array(fluid.global_scope().find_var("w").get_tensor())
        exe.run(feed={"x": np.full((2, 3), 5, "float32")})
        step = before - np.array(fluid.global_scope().find_var("w").get_tensor())
    np.testing.assert_allclose(step, 0.01, rtol=1e-4)


def test_the_clip_is_no_part_of_the_signature() -> None:
    assert "clip" not in inspect.signature(fluid.ParamAttr).parameters
    assert fluid.WeightNormParamAttr(clip=fluid.clip.GradientClipByNorm(1.0)).gradient_clip is not None
    with pytest.raises(TypeError, match="clop"):
        fluid.ParamAttr(clop=1)


@pytest.mark.filterwarnings("ignore:The Accuracy is deprecated")
def test_accuracy_over_batches() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.scope_guard(fluid.Scope()):
        scores = fluid.data("scores", [None, 3], "float32")
        label = fluid.data("label", [None, 1], "int64")
        accuracy = fluid.evaluator.Accuracy(input=scores, label=label)
        exe = fluid.Executor(fluid.CPUPlace())
        for _ in range(2):  # the second pass starts at zero again
            accuracy.reset(exe)
            assert accuracy.eval(exe) == 0
            for labels in ([0, 1, 2, 0], [2, 2, 2, 2]):
                feed = {"scores": np.eye(4, 3, dtype="float32"), "label": np.array(labels, "int64")[:, None]}
                exe.run(main, feed, accuracy.metrics)
            np.testing.assert_allclose(accuracy.eval(exe), 5 / 8)


def test_the_program_for_inference() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 3], "float32")
        out = fluid.layers.dropout(fluid.layers.relu(x), 0.5)
        loss = fluid.layers.mean(out)
        assert loss.name
        program = fluid.io.get_inference_program([out], main)
    assert [op.type for op in program.global_block().ops] == ["relu", "dropout"]
    assert program.global_block().ops[1].attr("is_test") is True


def test_names_that_moved() -> None:
    assert fluid.layers.tree_conv is fluid.contrib.layers.tree_conv
    assert fluid.dygraph.load_persistables is fluid.dygraph.persistables.load_persistables


def test_first_values_on_the_cpu() -> None:
    with fluid.initializer.init_on_cpu():
        assert not fluid.initializer.force_init_on_cpu()
    assert fluid.backward.append_backward_ops is fluid.backward.append_backward


def test_arguments_that_chose_a_library_are_left_out() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.layers.data("x", [3, 8, 8])
        conv = fluid.layers.conv2d(x, 4, 3, use_mkldnn=True)
        conv = fluid.layers.batch_norm(conv, use_mkldnn=True, fuse_with_relu=False)
        conv = fluid.layers.pool2d(conv, 2, use_mkldnn=False)
        out = fluid.layers.softmax(fluid.layers.fc(conv, 2, use_mkldnn=True, is_test=True), bias_attr=None)
        assert out.shape == (-1, 2)
        frames = fluid.layers.data("frames", [5], lod_level=1)
        label = fluid.layers.data("label", [1], dtype="int32", lod_level=1)
        assert fluid.layers.warpctc(frames, label, blank=4, use_cudnn=False).shape == (-1, 1)
        with pytest.raises(TypeError, match="use_magic"):
            fluid.layers.fc(x, 2, use_magic=True)
        loss = fluid.layers.mean(out)
        parallel = fluid.ParallelExecutor(False, loss_name=loss.name, num_threads=4, allow_op_delay=True)
        assert parallel.device_count >= 1
        with pytest.raises(TypeError, match="use_magic"):
            fluid.ParallelExecutor(False, use_magic=True)
    assert "use_mkldnn" not in inspect.signature(fluid.layers.fc).parameters


def test_a_parallel_executors_gradient_scale_is_an_argument() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [3]), 2))
        fluid.optimizer.SGD(0.1).minimize(loss)
        given = {"use_default_grad_scale": False, "balance_parameter_opt_between_cards": True}
        parallel = fluid.ParallelExecutor(False, loss_name=loss.name, **given)
        build, kinds = parallel._compiled._build_strategy, fluid.BuildStrategy
        assert build.gradient_scale_strategy == kinds.GradientScaleStrategy.Customized
        assert build.reduce_strategy == kinds.ReduceStrategy.Reduce
        usual = fluid.ParallelExecutor(False, loss_name=loss.name, use_default_grad_scale=True)._compiled
        assert usual._build_strategy.gradient_scale_strategy == kinds.GradientScaleStrategy.CoeffNumDevice
    assert "use_default_grad_scale" not in inspect.signature(fluid.ParallelExecutor).parameters


def test_how_a_transpiler_splits_is_an_argument() -> None:
    from fluidjax.transpiler.ps_dispatcher import HashName

    servers = "127.0.0.1:6170,127.0.0.1:6171"
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [3]), 2, param_attr="w", bias_attr="b"))
        fluid.optimizer.SGD(0.1).minimize(loss)
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(0, pservers=servers, trainers=2, split_method=HashName, slice_var_up=False)
        assert transpiler.config.split_method is HashName
        assert not transpiler.config.slice_var_up
        held = {end: transpiler.get_pserver_program(end).global_block().vars for end in servers.split(",")}
        homes = {name: [end for end, variables in held.items() if name in variables] for name in "wb"}
        dispatched = HashName(servers.split(",")).dispatch([fluid.default_startup_program().global_block().var("w")])
        assert homes["w"] == dispatched
        with pytest.raises(TypeError, match="split_by"):
            transpiler.transpile(0, pservers=servers, split_by=HashName)
