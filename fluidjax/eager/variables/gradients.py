"""The gradient of an eager variable: a value, and one variable for it from when somebody asks for that."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.eager import values
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.values import Value
from fluidjax.execution.scopes.fetched import FetchedArray
from lowering.program import GRAD
from lowering.values import SelectedRows


class Gradients:
    """What a VarBase has for its gradient.

    Attributes:
        _grad: its value; a VarBase with that value, or without one, once there is such a variable; None.
    """

    __slots__ = ()
    _grad: Any

    def gradient(self: Any) -> Any:
        """A copy of the gradient, arrays (values, rows) if it is sparse; None before any backward pass.

        Zeros for an output that nothing was computed from, if the op's gradient reads those of all its outputs.
        """
        grad = self._gradient_value()
        if grad is None:
            return None
        array = recorder.array_of(grad)
        if isinstance(array, SelectedRows):
            count = None if array.nrows is None else int(array.nrows)  # a sum of gradients is padded
            return values.on_host(array.values)[:count], np.array(array.rows, dtype=np.int64)[:count]
        return values.on_host(array).view(FetchedArray)

    def _shape_of_rows(self: Any) -> list[int]:
        """The shape of what SelectedRows hold."""
        if self._value is None:  # cleared
            return list(self._spec.shape)
        array = self._array()
        count = array.values.shape[0] if array.nrows is None else array.nrows  # a sum of gradients is padded
        return [int(count), *self._spec.shape[1:]]

    def clear_gradient(self: Any) -> None:
        """Zero the gradient; a sparse one is removed."""
        held = self._grad
        grad = held if held is None or held.__class__ is Value else held._value
        if grad is not None:
            self._set_gradient(values.cleared(grad.spec))

    def _set_gradient(self: Any, grad: Value | None) -> None:
        """Replace the gradient; its variable, if there is one, remains the same."""
        held = self._grad
        if held is None or held.__class__ is Value:
            self._grad = grad
            return
        if grad is None:
            held._declared = held._spec  # what it reports meanwhile
        held._value, held._place = grad, None

    def _keeps_gradient(self: Any) -> bool:
        """Whether backward passes leave the gradient as it is: it is stopped, or its variable is."""
        held = self._grad
        decides = self if held is None or held.__class__ is Value else held
        return decides._stop_gradient is not False

    def _gradient_value(self: Any) -> Value | None:
        held = self._grad
        grad: Value | None = held if held is None or held.__class__ is Value else held._value
        if grad is None and self._place is not None and self._place[0].took_zeros(self._place[1]):
            grad = values.zeros(self._spec)
            self._set_gradient(grad)
        return grad

    def _grad_ivar(self: Any) -> Any:
        """The gradient as a variable, the same one each time; None if there is none."""
        grad = self._gradient_value()
        if grad is None:
            return None
        if self._grad.__class__ is Value:
            self._grad = self._of(self._grad_name(), grad, self._stop_gradient is not False)
        return self._grad

    def _grad_name(self: Any) -> str:
        return self.name + GRAD
