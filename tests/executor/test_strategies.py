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
        (Execution, "num_threads", np.float32(2), 2),
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
        (DistributedStrategy, "num_trainers", "4"),
    ],
)
def test_a_setting_refuses_other_types(kind: type, name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} has a value of the wrong type\n  expected: a .*\n  received: .*"):
        setattr(kind(), name, value)


def test_memory_is_optimized_or_not_or_by_default() -> None:
    with pytest.raises(fluid.core.EnforceNotMet, match="None, False or True"):
        Build().memory_optimize = 1


def test_ways_of_reducing_print_as_in_fluid() -> None:
    assert [str(Scale.One), repr(Reduce.AllReduce), int(Scale.Customized)] == [
        "GradientScaleStrategy.One",
        "ReduceStrategy.AllReduce",
        2,
    ]
