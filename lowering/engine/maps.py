"""Ops between convolutions, with channels last in memory.

XLA's convolution on CPUs reads and writes images channels last, whatever the order of their dims. It lays out the
result of every other op in the order of its dims, so each activation or sum of images between two convolutions would
copy them to channels first, and the next convolution, its gradient and the normalisation copy them back. Where an
element-wise op reads what a convolution wrote, its operands are therefore transposed before it and its results after:
these transpositions cancel with those around the convolutions, and each element is computed as before. A step
of ResNet-20 takes 0.88 of the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lowering.engine.context import Env
from lowering.engine.runner import Runner
from lowering.program import EMPTY, OpView

_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_FORWARD = "relu relu6 leaky_relu sigmoid swish hard_swish elementwise_add elementwise_sub elementwise_mul sum".split()
_BY_ELEMENTS = frozenset([*_FORWARD, *(f"{type}_grad" for type in _FORWARD)])
_NORMALISATIONS = {"batch_norm": ("X", "Y"), "batch_norm_grad": ("X", "X@GRAD")}
_CONVOLUTIONS = {"conv2d": "Output", "conv2d_grad": "Input@GRAD"}
_LEAST_CHANNELS, _LARGE = 4, 25  # as in ``ops.nn.conv_kernels``: matrix products leave images in another order


class MapRunner(Runner):
    """Runs ops in one trace for a CPU, with element-wise ops between convolutions channels last."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._maps: set[str] = set()  # names of images that are channels last in memory

    def _run_op(self, op: OpView, env: Env) -> dict[str, Any]:
        images = self._by_elements(op, env) if self._maps and op.type in _BY_ELEMENTS else {}
        if images:
            last = {name: value.transpose(_LAST) for name, value in images.items()}
            results = super()._run_op(op, {**env, **last})
            results = {n: v.transpose(_FIRST) if _is_image(v) else v for n, v in results.items()}
        else:
            results = super()._run_op(op, env)
        self._maps.difference_update(results)
        self._maps.update(results if images else self._left(op, env))
        return results

    def _by_elements(self, op: OpView, env: Env) -> Env:
        """The op's inputs, if they are images of one shape and one of them is channels last; otherwise none."""
        names = [name for name in op.input_names() if name != EMPTY]
        values: Env = {name: env.get(name) for name in names}
        alike = all(map(_is_image, values.values())) and len({np.shape(v) for v in values.values()}) == 1
        return values if alike and not self._maps.isdisjoint(names) else {}

    def _left(self, op: OpView, env: Env) -> Sequence[str]:
        """The outputs that an op other than an element-wise one leaves channels last."""
        if op.type in _NORMALISATIONS:
            read, written = _NORMALISATIONS[op.type]
            return op.outputs.get(written, []) if op.inputs[read][0] in self._maps else []
        slot = _CONVOLUTIONS.get(op.type)
        return op.outputs.get(slot, []) if slot and _is_direct(op, env) else []


def _is_image(value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray)) and value.ndim == 4


def _is_direct(op: OpView, env: Env) -> bool:
    """Whether XLA's own convolution computes the op, rather than a matrix product."""
    _, inner, *taps = env[op.inputs["Filter"][0]].shape
    whole = op.attrs.get("groups", 1) == 1 and op.attrs.get("data_format", "NCHW") != "NHWC"
    return whole and 1 < math.prod(taps) < _LARGE and (op.type == "conv2d" or inner >= _LEAST_CHANNELS)
