"""The scope variable that Fluid has for an eager variable, and its tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fluidjax.base.containers import SelectedRows as HostRows
from fluidjax.base.values import LoDTensor
from fluidjax.eager import values
from fluidjax.eager.values import Value
from fluidjax.execution.scopes.exchange import lod_array

if TYPE_CHECKING:
    from fluidjax.base.scope import Scope


class Holder:
    """The result of ``var.value()``: the scope variable that Fluid has for a VarBase."""

    def __init__(self, var: Any) -> None:
        self._var = var

    def get_tensor(self) -> Any:
        """The value; setting it changes the variable."""
        return _Tensor(self._var)

    def get_selected_rows(self) -> HostRows:
        """A copy of a sparse value."""
        array = self._var._array()
        count = None if array.nrows is None else int(array.nrows)  # a sum of gradients is padded
        rows = HostRows(np.asarray(array.rows)[:count].tolist(), array.height)
        rows.get_tensor()._set_value(np.asarray(array.values)[:count])
        return rows

    def set_scope(self, scope: Scope) -> None:
        """Hold a scope, as the OutScope of ``run_program`` does."""
        self._var.held_scope = scope


class _Tensor(LoDTensor):
    """The LoDTensor of a VarBase."""

    def __init__(self, var: Any) -> None:
        super().__init__()
        self._var = var
        if var._value is not None:
            super()._set_value(values.on_host(var._array()), var.lod())

    def set(self, array: Any, place: Any, zero_copy: bool = False) -> None:
        """Replace the variable's value."""
        super().set(array, place, zero_copy)
        self._write_through()

    def set_lod(self, lod: Any) -> None:
        """Set the offsets of the variable's sequences."""
        super().set_lod(lod)
        self._write_through()

    def set_recursive_sequence_lengths(self, recursive_sequence_lengths: Any) -> None:
        """Set the lengths of the variable's sequences."""
        super().set_recursive_sequence_lengths(recursive_sequence_lengths)
        self._write_through()

    def _write_through(self) -> None:
        """Bind the variable to the current contents."""
        array = np.array(self)
        plain = values.value_of(array)
        self._var._value = Value(lod_array(plain.array, self._lod, room=None)) if self._lod else plain
