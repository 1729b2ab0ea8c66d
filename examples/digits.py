"""Tells digits apart, of MNIST's size, by a network of two layers.

python -m examples.digits                                                         one core
CPU_NUM=4 XLA_FLAGS=--xla_force_host_platform_device_count=4 python -m examples.digits   four devices
fluidjax launch --workers 2 examples/digits.py                                    two processes
fluidjax launch --servers 2 --workers 2 examples/digits.py                        parameter servers
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import fluidjax as fluid  # noqa: E402
from examples.job import Batch, fixed, train  # noqa: E402
from fluidjax import layers  # noqa: E402


def network() -> Any:
    image, label = fluid.data("image", [None, 784], "float32"), fluid.data("label", [None, 1], "int64")
    hidden = layers.fc(image, 10, act="relu", param_attr=fixed("w0", 784, 10), bias_attr=fixed("b0", 10))
    guess = layers.fc(hidden, 10, act="softmax", param_attr=fixed("w1", 10, 10), bias_attr=fixed("b1", 10))
    return layers.mean(layers.cross_entropy(guess, label))


def digits(count: int = 30, size: int = 64) -> Iterator[Batch]:
    """Noisy pictures of ten shapes, which stand for the digits: nothing has to be downloaded."""
    draw = np.random.RandomState(0)
    shapes = draw.rand(10, 784)
    for _ in range(count):
        label = draw.randint(0, 10, (size, 1))
        image = shapes[label[:, 0]] + draw.normal(0, 0.5, (size, 784))
        yield {"image": (image - 0.5).astype("float32"), "label": label}


if __name__ == "__main__":
    train(network, fluid.optimizer.Momentum(0.05, 0.9), digits())
