"""Interpret mode: programs run op by op, each op in a jit of its own, for debugging."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluidjax.base.flags import FLAGS
from fluidjax.base.scope import Scope
from fluidjax.execution.runs.prepared import Prepared
from lowering.errors import EnforceNotMet
from lowering.program import OpView
from lowering.values import Form, LoDArray, SelectedRows

AfterOp = Callable[[OpView, dict[str, Any]], None]


@dataclass
class Mode:
    """Whether to interpret, what to call after each op, and what to call before each run with all its arguments."""

    interpret: bool = False
    after_op: AfterOp | None = None
    before_run: Callable[..., None] | None = None


current = Mode()


def again(prepared: Prepared, scope: Scope, feed: Mapping[str, Any], program: Any) -> list[Any] | None:
    """Run a program like the last time (see ``SettledRuns.again``); None where that is impossible."""
    if current.interpret or FLAGS["FLAGS_check_nan_inf"]:
        return None
    return prepared.again(scope, feed, program)


def run(prepared: Prepared, scope: Scope, feed: Mapping[str, Any], seed: Any) -> list[Any]:
    """Run a program once, in the mode that is on: the fetched values, in order."""
    if current.interpret:
        if current.before_run is not None:
            current.before_run(prepared, scope, feed, seed)
        return prepared.interpret(scope, feed, seed, current.after_op)
    if FLAGS["FLAGS_check_nan_inf"]:
        return prepared.interpret(scope, feed, seed, check_finite)
    if prepared.constant:
        return prepared.interpret(scope, feed, seed)
    return prepared.run(scope, feed, seed)


@contextlib.contextmanager
def interpret_mode(after_op: AfterOp | None = None) -> Iterator[None]:
    """Within this context every ``Executor.run`` runs op by op and gives the same values.

    Args:
        after_op: called as ``after_op(op, values)`` after each op, with the values it wrote by name.
    """
    global current
    before, current = current, Mode(True, after_op)
    try:
        yield
    finally:
        current = before


class NonFiniteError(EnforceNotMet, FloatingPointError):
    """An op wrote a NaN or an infinity."""


def check_finite(op: OpView, values: dict[str, Any]) -> None:
    """Raise NonFiniteError when ``op`` wrote a NaN or an infinity (FLAGS_check_nan_inf)."""
    for name, value in values.items():
        array = _numbers(value)
        if array is None or np.isfinite(array).all():
            continue
        line = op.user_line().strip()
        raise NonFiniteError(
            f"{op.label} wrote non-finite numbers to {name!r}:"
            f" {int(np.isnan(array).sum())} NaN and {int(np.isinf(array).sum())} infinite of {array.size}; expected"
            f" finite ones (FLAGS_check_nan_inf is set).{' Built at: ' + line if line else ''}"
            " Check the op's inputs, lower the learning rate or clip the gradients.\n"
            f"===ERROR: in [op={op.type}] [tensor={name}] find nan or inf==="  # what scripts look for in 1.8.5's text
        )


def _numbers(value: Any) -> np.ndarray | None:
    if isinstance(value, LoDArray):
        rows = value.data.shape[0] if value.nrows is None else int(value.nrows)
        value = value.data[:rows]
    if isinstance(value, SelectedRows):
        value = value.values
    if isinstance(value, Form) or not hasattr(value, "dtype"):
        return None
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind not in "fiub" else array
