"""Softmax below the cross entropy of one class a row, on CPUs.

``cross_entropy`` leaves a gradient that is zero but for one element a row, the label's, and the gradient of a softmax
sums such a row times the probabilities. That sum is the one element's product: adding zeros changes no number. As a
sum over all classes, XLA keeps the gradient and the probabilities in memory and goes through both twice; without it
one loop over the classes is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lowering.engine.context import Env
from lowering.engine.maps import MapRunner
from lowering.program import GRAD, OpView
from lowering.registry import OpDef
from lowering.values import LoDArray

_LOSSES = frozenset({"cross_entropy_grad", "cross_entropy_grad2"})
_ONE_OF_EACH_ROW = lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,))


class OneHotRunner(MapRunner):
    """Runs ops in one trace for a CPU, with sums over gradients of one element a row as that element."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._labels: dict[str, tuple[Any, Any]] = {}  # by name: the gradient, and the labels where it is not zero

    def _run_op(self, op: OpView, env: Env) -> dict[str, Any]:
        results = super()._run_op(op, env)
        if op.type in _LOSSES and op.block_idx == 0 and not op.attrs.get("soft_label", False):
            self._labels.update({name: (value, env[op.inputs["Label"][0]]) for name, value in results.items()})
        return results

    def _results(self, definition: OpDef, op: OpView, env: Env) -> dict[str, Any]:
        if op.type == "softmax_grad" and op.block_idx == 0:
            (name,) = op.inputs["Out" + GRAD]
            gradient, label = self._labels.get(name, (None, None))
            label = label.data if isinstance(label, LoDArray) else label
            if isinstance(label, jax.Array) and env.get(name) is gradient:
                definition = replace(definition, fn=partial(_softmax_grad, definition.fn, label))
        return super()._results(definition, op, env)


def _softmax_grad(rule: Callable[..., Any], label: Any, out: Any, d_out: Any, *, axis: int) -> Any:
    """X@GRAD = Out * (Out@GRAD - sum(Out * Out@GRAD)), for an Out@GRAD that is zero but at ``label`` in each row.

    Args:
        rule: computes it where the classes are not along the last axis, or the rows were given other room.
        label: [...] or [..., 1], integers. A row whose label is no class has no element that is not zero.
        out, d_out: [..., classes].
        axis: as in ``softmax``.
    """
    if axis % out.ndim != out.ndim - 1 or label.shape not in (out.shape[:-1], (*out.shape[:-1], 1)):
        return rule(out, d_out, axis=axis)
    total = _at(label, out) * _at(label, d_out)
    return out * (d_out - total.reshape(*out.shape[:-1], 1))


def _at(label: Any, x: Any) -> Any:
    """Each row's element at its label; the first or the last one where the label is no class."""
    rows = x.reshape(-1, x.shape[-1])
    index = jnp.clip(label, 0, x.shape[-1] - 1).reshape(-1, 1)
    return lax.gather(rows, index, _ONE_OF_EACH_ROW, (1, 1), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)
