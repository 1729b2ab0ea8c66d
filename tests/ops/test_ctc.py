"""Losses of connectionist temporal classification where a label is the blank; the numbers are those of 1.8.5."""

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers


def test_a_label_may_be_the_blank() -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        logits, label = fluid.data("logits", [5, 3, 4]), fluid.data("label", [3, 2], "int32")
        frames, sizes = (fluid.data(name, [3], "int64") for name in ("frames", "sizes"))
        loss = layers.warpctc(logits, label, input_length=frames, label_length=sizes)
    feed = {
        "logits": np.random.RandomState(0).rand(5, 3, 4).astype("float32"),
        "label": np.array([[0, 1], [1, 0], [2, 3]], "int32"),
        "frames": np.full(3, 5),
        "sizes": np.full(3, 2),
    }
    (found,) = fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=[loss])
    assert found[:, 0] == pytest.approx([3.6726756, 3.9414155, 3.4090390], rel=1e-6)
