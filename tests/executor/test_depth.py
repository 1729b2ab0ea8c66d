"""What XLA compiles for layers upon layers: no loop goes over more than a layer or two, however many there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import fluidjax as fluid
from fluidjax import layers
from fluidjax.framework.view import program_view
from lowering.engine.runner import Runner
from lowering.engine.x64 import with_x64

# 32 KB: what has at most 16, XLA on CPUs computes anew wherever it is read.
B, T, D = 8, 32, 32


def attended(x: Any) -> Any:
    """A layer of a Transformer, without its attention: normalised sums upon normalised sums."""
    sums = x + layers.fc(layers.fc(x, D, num_flatten_dims=2, act="gelu"), D, num_flatten_dims=2)
    return layers.layer_norm(sums, begin_norm_axis=2)


def operands_of_loops(layer: Callable[[Any], Any], depth: int) -> int:
    """How many operands the largest loop has, in a training step of so many layers."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", (B, T, D))
        for _ in range(depth):
            x = layer(x)
        pairs = fluid.backward.append_backward(layers.mean(layers.square(x)))
    names = [gradient.name for _, gradient in pairs]
    shapes = {p.name: p.shape for p in main.all_parameters()} | {"x": (B, T, D)}
    values = {n: np.full(s, 0.1, np.float32) for n, s in shapes.items()}

    def gradients(values: dict[str, Any]) -> list[Any]:
        env = Runner(program_view(main), platform="cpu").run_block(0, dict(values))
        return [env[n] for n in names]

    text = with_x64(lambda v: jax.jit(gradients).lower(v).compile().as_text() or "", values)
    return max(operands.count("%") for operands in re.findall(r" fusion\(([^)]*)\)", text))


def test_loops_are_as_large_in_deep_nets_as_in_shallow_ones() -> None:
    assert operands_of_loops(attended, 4) <= operands_of_loops(attended, 2)
