"""The examples in docstrings give what they show, and the names that scripts use most have one."""

from __future__ import annotations

import doctest
import inspect
import os
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
import fluidjax.paddle as paddle
from tools import reference

PAGES = sorted((Path(__file__).parents[2] / "docs/api").glob("*.md"))
ROOTS = {"fluid": fluid, "paddle": paddle}

# What at least ten of 103 projects of 2019 and 2020 use: examples of Fluid, its book, its model zoo.
MOST_USED = """
fluid.CPUPlace fluid.CUDAPlace fluid.default_main_program fluid.default_startup_program fluid.ParamAttr
fluid.layers.fc fluid.Executor fluid.data fluid.layers.mean fluid.layers.concat fluid.layers.reshape
fluid.optimizer.Adam paddle.batch fluid.program_guard fluid.io.DataLoader fluid.layers.reduce_sum fluid.Program
fluid.layers.elementwise_add fluid.layers.cross_entropy fluid.regularizer.L2Decay fluid.io.save_inference_model
fluid.initializer.Constant fluid.layers.reduce_mean fluid.layers.cast fluid.layers.transpose fluid.scope_guard
fluid.save fluid.layers.dropout fluid.layers.elementwise_mul fluid.load fluid.layers.accuracy fluid.layers.softmax
fluid.initializer.Uniform fluid.embedding fluid.io.load_inference_model paddle.reader.shuffle fluid.DataFeeder
fluid.layers.sigmoid fluid.initializer.Normal fluid.layers.piecewise_decay fluid.global_scope
fluid.unique_name.guard fluid.layers.matmul fluid.require_version fluid.layers.conv2d fluid.layers.batch_norm
fluid.is_compiled_with_cuda fluid.optimizer.SGD fluid.dygraph.guard fluid.dygraph.to_variable fluid.dygraph.Layer
fluid.layers.fill_constant fluid.CompiledProgram fluid.layers.shape fluid.layers.softmax_with_cross_entropy
fluid.dygraph.load_dygraph fluid.layers.squeeze fluid.layers.expand fluid.dygraph.save_dygraph fluid.layers.slice
fluid.clip.GradientClipByGlobalNorm fluid.layers.pool2d fluid.core.EOFException fluid.core.Scope
fluid.layers.sigmoid_cross_entropy_with_logits fluid.layers.unsqueeze fluid.optimizer.Momentum
fluid.core.get_cuda_device_count fluid.BuildStrategy fluid.layers.data fluid.layers.assign fluid.layers.relu
fluid.dygraph.Linear fluid.LoDTensor fluid.layers.log fluid.contrib.distributed_batch_reader
fluid.core.is_compiled_with_cuda fluid.Scope fluid.layers.create_parameter fluid.ParallelExecutor
fluid.DistributeTranspiler fluid.layers.tanh fluid.layers.create_global_var fluid.layers.scale
fluid.optimizer.Adagrad fluid.layers.split fluid.ExecutionStrategy fluid.initializer.TruncatedNormal
fluid.dygraph.Conv2D fluid.layers.embedding fluid.layers.sequence_pool fluid.cuda_places
fluid.layers.elementwise_sub fluid.dygraph.ParallelEnv fluid.io.load_vars fluid.layers.topk fluid.dygraph.Embedding
fluid.framework.Parameter fluid.cpu_places fluid.dygraph.DataParallel fluid.dygraph.prepare_context
fluid.layers.less_than
""".split()


def docstring(name: str) -> str:
    """The docstring of a full name."""
    root, *parts = name.split(".")
    value = ROOTS[root]
    for part in parts:
        value = getattr(value, part)
    return inspect.getdoc(value) or ""


DESCRIBED = sorted(set().union(*(reference.names(page.read_text()) for page in PAGES)))


@pytest.mark.parametrize("name", [name for name in DESCRIBED if ">>>" in docstring(name)])
def test_an_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"np": np, "fluid": fluid, "paddle": paddle, "os": os}
    test = doctest.DocTestParser().get_doctest(docstring(name), given, name, None, None)
    told: list[str] = []
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append)
    assert not told, "".join(told)
    assert any(example.want for example in test.examples), "an example shows a result"


def test_the_names_that_scripts_use_most_are_in_the_reference_and_have_an_example():
    assert len(MOST_USED) > 100
    assert [name for name in MOST_USED if ">>>" not in docstring(name)] == []
    assert set(MOST_USED) - set(DESCRIBED) == set()


def test_a_docstring_as_markdown():
    def layer(x, y=2):
        """out = x_i * y [rows].

        Args:
            x: the `input`,
                of any shape.

        Raises:
            ValueError: y is 0.

        Examples:
            >>> 1 + 1
            2
        """

    shown = "\n".join(reference.entry("fluid.layer", layer, ["fluid.same"]))
    assert "## fluid.layer { #fluid.layer }" in shown and "Also `fluid.same`." in shown
    assert "fluid.layer(x, y=2)" in shown and r"out = x\_i \* y \[rows\]." in shown
    assert "- `x`: the `input`,\nof any shape." in shown and "- `ValueError`: y is 0." in shown
    assert "```pycon\n>>> 1 + 1\n2\n```" in shown
