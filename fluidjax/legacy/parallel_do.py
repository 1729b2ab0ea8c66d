"""``layers.ParallelDo`` of Fluid 0.11 to 0.14: a part that each device computed for its share of rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fluidjax.framework import Variable


class ParallelDo:
    """A part of the network written as if for one device, and computed as it stands, for all rows at once.

    What a device gave for its rows, and all devices' results one below the other were, is what the same layers give for
    all rows; a mean is that of the whole batch. ``CompiledProgram.with_data_parallel`` spreads it over devices.

    Args:
        places: the devices, kept for Fluid's sake.
        use_nccl, name: likewise.

    Examples:
        >>> x = fluid.data("x", [None, 2])
        >>> spread = fluid.layers.ParallelDo(fluid.layers.get_places())
        >>> with spread.do():
        ...     spread.write_output(fluid.layers.fc(spread.read_input(x), 1))
        >>> spread().shape
        (-1, 1)
    """

    def __init__(self, places: Any, use_nccl: bool = False, name: str | None = None) -> None:
        self.places = places
        self._outputs: list[Variable] = []

    @contextlib.contextmanager
    def do(self) -> Iterator[None]:
        """Within, write the part."""
        yield

    def read_input(self, var: Variable) -> Variable:
        """An input, as the part sees it."""
        return var

    def write_output(self, var: Variable) -> None:
        """Make a result of the part one of its outputs."""
        self._outputs.append(var)

    def __call__(self) -> Any:
        """The outputs: the only one, or a list."""
        return self._outputs[0] if len(self._outputs) == 1 else list(self._outputs)
