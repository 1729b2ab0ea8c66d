"""Settings of strategies take values of their type alone, and hold them converted, as in Paddle 1.8.5."""

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.incubate.fleet.collective import DistributedStrategy

Build, Execution = fluid.BuildStrategy, fluid.ExecutionStrategy
Scale, Reduce = Build.GradientScaleStrategy, Build.ReduceStrategy


@pytest.mark.parametrize(
    ("kind", "name", "value", "held"),
    [
        (Build, "sync_batch_norm", 1, True),
        (Build, "sync_batch_norm", 1.5, True),
        (Build, "sync_batch_norm", None, False),
        (Build, "fuse_all_reduce_ops", np.array(0), False),
        (Build, "num_trainers", np.int64(3), 3),
        (Build, "nccl_comm_num", True, 1),
        (Build, "debug_graphviz_path", b"there", "there"),
        (Build, "trainers_endpoints", ("a", b"b"), ["a", "b"]),
        (Build, "mkldnn_enabled_op_types", {"conv2d"}, {"conv2d"}),
        (Build, "memory_optimize", None, None),
        (Build, "reduce_strategy", Reduce.Reduce, Reduce.Reduce),
        (Build, "num_trainers", np.array([3]), 3),
        (Execution, "num_threads", np.float32(2), 2),
        (Execution, "num_iteration_per_run", 2**40, 2**40),
        (Execution, "use_cuda", 1, True),
        (DistributedStrategy, "mode", 3, 3),
    ],
)
def test_a_setting_holds_what_it_is_given_in_its_type(kind: type, name: str, value: Any, held: Any) -> None:
    strategy = kind()
    setattr(strategy, name, value)
    assert getattr(strategy, name) == held and type(getattr(strategy, name)) is type(held)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (Build, "sync_batch_norm", "no"),
        (Build, "sync_batch_norm", []),
        (Build, "sync_batch_norm", np.zeros(2)),
        (Build, "sync_batch_norm", Scale.One),
        (Build, "num_trainers", 1.5),
        (Build, "num_trainers", None),
        (Build, "num_trainers", 2**40),
        (Build, "debug_graphviz_path", None),
        (Build, "trainers_endpoints", {"a"}),
        (Build, "trainers_endpoints", [1]),
        (Build, "mkldnn_enabled_op_types", ["conv2d"]),
        (Build, "reduce_strategy", 1),
        (Build, "gradient_scale_strategy", Reduce.Reduce),
        (Execution, "num_threads", "4"),
        (Execution, "num_iteration_per_drop_scope", -1),
        (DistributedStrategy, "num_trainers", "4"),
    ],
)
def test_a_setting_refuses_other_types(kind: type, name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} has a value of the wrong type\n  expected: a .*\n  received: .*"):
        setattr(kind(), name, value)


def test_memory_is_optimized_or_not_or_by_default() -> None:
    with pytest.raises(fluid.core.EnforceNotMet, match="None, False or True"):
        Build().memory_optimize = 1


def test_a_strategy_with_its_passes_still_says_which_settings_it_has() -> None:
    strategy = Build()
    strategy._finalize_strategy_and_create_passes()
    with pytest.raises(AttributeError, match="no setting 'fuse_everything'"):
        strategy.fuse_everything = True
    with pytest.raises(fluid.core.EnforceNotMet, match="has been finalized"):
        strategy.sync_batch_norm = True


def test_a_run_says_where_it_was_and_how_many_threads_it_was_given() -> None:
    strategy = Execution()
    assert strategy.use_cuda and strategy.use_experimental_executor
    with fluid.program_guard(fluid.Program()):
        total = fluid.layers.reduce_sum(fluid.data("x", [None, 2]))
        places = [fluid.CPUPlace()] * 2
        program = fluid.CompiledProgram(fluid.default_main_program())
        program = program.with_data_parallel(exec_strategy=strategy, places=places)
        assert fluid.Executor().run(program, {"x": np.ones((2, 2), "f4")}, [total])[0].tolist() == [2.0, 2.0]
    assert strategy.num_threads == 4 and not strategy.use_cuda and strategy.use_experimental_executor


@pytest.mark.parametrize("return_numpy", [True, False])
def test_a_compiled_program_has_one_device_at_least(return_numpy: bool) -> None:
    """Unmerged fetches are lists of the devices' values, of one for a program that is for no several devices."""
    with fluid.program_guard(fluid.Program()):
        total = fluid.layers.reduce_sum(fluid.data("x", [None, 2]))
        program, exe = fluid.default_main_program(), fluid.Executor()
        for kind, depth in ((program, 1), (fluid.CompiledProgram(program), 2)):
            for _ in range(2):
                found = exe.run(
                    kind, {"x": np.ones((2, 2), "f4")}, [total], return_numpy=return_numpy, return_merged=False
                )
                values = [part for fetch in found for part in fetch] if depth == 2 else found
                assert len(found) == 1 and [np.array(value).tolist() for value in values] == [[4.0]]


def test_ways_of_reducing_print_as_in_fluid() -> None:
    assert [str(Scale.One), repr(Reduce.AllReduce), int(Scale.Customized)] == [
        "GradientScaleStrategy.One",
        "ReduceStrategy.AllReduce",
        2,
    ]
