"""The names of eager mode, and their arguments, are those of Paddle 1.8.5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from tests.spec import api
from tests.spec.signatures import check

# Of converting functions into programs: they are held elsewhere.
OTHERS = ("dygraph_to_static", "TracedLayer", "ProgramTranslator", "StaticModelRunner", "jit.", "base.p")
NAMES = [
    name
    for name, entry in api().items()
    if "fluid.dygraph" in entry.get("alias_of", name) and not any(part in name for part in OTHERS)
]


@pytest.mark.parametrize("name", [*NAMES, "paddle.fluid.monkey_patch_varbase", "paddle.fluid.in_dygraph_mode"])
def test_a_name_takes_what_it_takes_in_fluid(name: str) -> None:
    assert check(name).state == "equal", check(name).problem


def test_the_tracer_runs_ops() -> None:
    with fluid.dygraph.guard():
        x, out = fluid.dygraph.to_variable(np.array([1.0, -1.0], "float32")), fluid.core.VarBase()
        fluid.dygraph.Tracer().trace_op("relu", {"X": [x]}, {"Out": [out]}, {})
        assert out.numpy().tolist() == [1, 0]
        fluid.monkey_patch_varbase()
        assert (out + 1.0).numpy().tolist() == [2, 1]


def _numbers() -> tuple[int, int]:
    """The next number that the tracer gives, and the next of ``unique_name``."""
    one: Any = fluid.layers.fill_constant([1], "float32", 1.0)
    return int((one + 1).name.split("_")[1]), int(fluid.layers.cast(one, "int32").name.split("_")[1])


def _given(compute: Callable[[], object]) -> tuple[int, int]:
    """How many names the tracer and ``unique_name`` give in a computation."""
    (traced, helped), _ = _numbers(), compute()
    now = _numbers()
    return now[0] - traced - 2, now[1] - helped - 1  # a reading takes two of the tracer's and one of unique_name's


def test_a_clip_by_global_norm_takes_names_of_the_tracer_alone() -> None:
    with fluid.dygraph.guard():
        linear = fluid.dygraph.Linear(3, 4)
        clip = fluid.clip.GradientClipByGlobalNorm(0.1)
        sgd = fluid.optimizer.SGD(0.1, parameter_list=linear.parameters(), grad_clip=clip)
        for _ in range(4):  # written twice, repeated from then on
            loss = fluid.layers.reduce_sum(linear(fluid.layers.ones([2, 3], "float32")))
            loss.backward()
            assert _given(lambda loss=loss: sgd.minimize(loss)) == (12, 0)
            linear.clear_gradients()


@pytest.mark.parametrize(("groups", "use_cudnn", "names"), [(4, False, (0, 2)), (4, True, (2, 0)), (2, False, (2, 0))])
def test_who_names_what_a_convolution_computes(groups: int, use_cudnn: bool, names: tuple[int, int]) -> None:
    with fluid.dygraph.guard():
        conv = fluid.dygraph.Conv2D(4, 8, 3, groups=groups, use_cudnn=use_cudnn)
        image = fluid.dygraph.to_variable(np.ones([2, 4, 4, 4], "float32"))
        assert _given(lambda: conv(image)) == names


@pytest.mark.parametrize(("act", "names"), [(None, (1, 0)), ("relu", (1, 1))])
def test_who_names_what_a_bilinear_product_computes(act: str | None, names: tuple[int, int]) -> None:
    with fluid.dygraph.guard():
        product = fluid.dygraph.BilinearTensorProduct(4, 4, 3, act=act)
        rows = fluid.dygraph.to_variable(np.ones([2, 4], "float32"))
        assert _given(lambda: product(rows, rows)) == names
