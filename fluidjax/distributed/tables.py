"""Growing tables: SelectedRows in the scope whose rows are created on first access, with spare capacity."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from fluidjax.base.containers import SelectedRows
from fluidjax.base.scope import Scope, held
from fluidjax.execution.scopes.state import on_device
from fluidjax.files.tensor import RowsValue
from lowering import values as low
from lowering.errors import UninitializedError


class Table:
    """A server's table, stored in the scope as SelectedRows: row ids in the order of first access.

    The capacity is the number of rows created by the startup program, which supply initial values to new ids, as in
    Fluid. When it is exhausted, it doubles and further rows start at zero.
    """

    def __init__(self, scope: Scope, name: str) -> None:
        self.name = name
        self._scope = scope
        self._places: dict[int, int] | None = None

    @property
    def values(self) -> Any:
        """The values on the device, including spare capacity."""
        tensor = self._holder().get_tensor()
        if tensor._value is None:
            raise UninitializedError(f"table {self.name!r} has no values: run the server's startup program first")
        tensor._set_value(on_device(tensor._value))
        return tensor._value

    def replace(self, values: Any) -> None:
        """Replace the values; the rows stay the same."""
        self._holder().get_tensor()._set_value(values)

    def places(self, ids: np.ndarray) -> np.ndarray:
        """The positions of ids, adding new ones at the end."""
        known = self._known()
        before = len(known)
        found = np.fromiter((known.setdefault(number, len(known)) for number in ids.tolist()), np.int64, len(ids))
        if len(known) > before:
            self._grow(len(known))
            self._holder()._rows = np.fromiter(known, np.int64, len(known))
        return found

    def localized(self, gradient: low.SelectedRows) -> low.SelectedRows:
        """A gradient indexed by row position instead of id."""
        places = self.places(gradient.rows)
        return low.SelectedRows(places, gradient.values, int(self.values.shape[0]))

    def file_value(self) -> RowsValue:
        """The content of its file: as in Fluid, the values including spare capacity."""
        rows = self._holder().rows()
        return RowsValue(np.array(self.values), rows, max(rows, default=-1) + 1)

    def _known(self) -> dict[int, int]:
        if self._places is None:
            self._places = {number: place for place, number in enumerate(self._holder().rows())}
        return self._places

    def _grow(self, rows: int) -> None:
        values = self.values
        room = len(values)
        if rows > room:
            more = max(rows, 2 * room) - room
            self.replace(jnp.concatenate([values, jnp.zeros((more, *values.shape[1:]), values.dtype)]))

    def _holder(self) -> SelectedRows:
        found = held(self._scope, self.name)
        if not isinstance(found, SelectedRows):
            raise UninitializedError(f"table {self.name!r} has no value: run the server's startup program first")
        return found
