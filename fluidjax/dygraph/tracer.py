"""The tracer, with Fluid's name and arguments."""

from __future__ import annotations

from typing import Any

from fluidjax.eager import tracer

__all__ = ["Tracer"]


class Tracer(tracer.Tracer):
    """Runs ops immediately and records what their gradients need."""

    def __init__(self) -> None:
        super().__init__()

    def trace_op(  # type: ignore[override]  # all slots are given, as in Fluid
        self, type: str, inputs: Any, outputs: Any, attrs: Any, stop_gradient: bool = False
    ) -> None:
        """Run an op.

        Args:
            type: the op's type.
            inputs: a variable, or a list of variables, per slot.
            outputs: likewise; their values are overwritten.
            attrs: the op's attributes.
            stop_gradient: whether to leave the op unrecorded.
        """
        super().trace_op(type, inputs, outputs, attrs, stop_gradient)

    def trace(self, type: str, inputs: Any, outputs: Any, attrs: Any, place: Any, trace_backward: bool) -> None:
        """Run an op; arguments as for ``trace_op``.

        Args:
            place: accepted as in Fluid: variables say where they are.
            trace_backward: whether gradients flow through the op.
        """
        self.trace_op(type, inputs, outputs, attrs, not trace_backward)
