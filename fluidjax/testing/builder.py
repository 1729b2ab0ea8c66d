"""Growing a random program (variables, feeds and parameters) from choices made by the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fluidjax as fluid

BATCH, WIDTH = 3, 4
LENGTHS = ((2, 0, 1), (1, 1, 1), (0, 3, 0))
# A block takes the builder and one of the pool's values, and gives a value of the same rows and width.
Block = Callable[["Builder", Any], Any]

Integer = Callable[[int, int], int]  # an integer between two, both included: drawn by hypothesis, or at random
Fill = Callable[[np.random.Generator, int], np.ndarray]


class Builder:
    """The pool of values from which a program is grown.

    All values of the pool are matrices with WIDTH columns and BATCH rows, or as many rows as the fed sequences have.

    Attributes:
        rng: generates numbers; choices come from ``integer``.
        scope: holds the values of the parameters.
        constants: names of persistable values that are not trained.
        pool: the values so far.
    """

    def __init__(self, integer: Integer, ragged: bool = False):
        self._integer = integer
        self._fills: dict[str, Fill] = {}
        self.constants: list[str] = []
        self.ragged = ragged
        self.rng = np.random.default_rng(integer(0, 2**16))
        self.scope = fluid.Scope()
        self.pool = [self.data("x", (WIDTH,), lambda rng, rows: rng.uniform(-1, 1, (rows, WIDTH)).astype(np.float32))]

    def choose(self, options: Sequence[Any]) -> Any:
        """Choose one of several options."""
        return options[self._integer(0, len(options) - 1)]

    def pick(self) -> Any:
        """Choose a value from the pool."""
        return self.choose(self.pool)

    def apply(self, block: Block) -> None:
        """Apply a block to a value of the pool and add the result. Branches lose what is declared about sequences."""
        made = block(self, self.pick())
        sequences = made.lod_level > 0 or not self.ragged
        self.pool.append(made if sequences else fluid.layers.lod_reset(made, self.pool[0]))

    def data(self, name: str, row: tuple[int, ...], fill: Fill, dtype: str = "float32") -> Any:
        """A fed variable with as many rows as all others; ``fill`` generates them."""
        self._fills[name] = fill
        return fluid.data(name, [-1, *row], dtype, lod_level=int(self.ragged))

    def ids(self, below: int) -> Any:
        """A fed id in [0, below) per row."""
        name = f"ids{len(self._fills)}"
        return self.data(name, (1,), lambda rng, rows: rng.integers(0, below, (rows, 1)), "int64")

    def parameter(self, shape: Sequence[int]) -> Any:
        """A trainable parameter with values from [-1, 1)."""
        return self.valued_parameter(self.rng.uniform(-1, 1, shape))

    def valued_parameter(self, value: np.ndarray) -> Any:
        """A trainable float32 parameter with a given value."""
        block = fluid.default_main_program().global_block()
        made = block.create_parameter(name=f"p{len(block.vars)}", shape=list(value.shape), dtype="float32")
        self.set(made.name, value.astype(np.float32))
        return made

    def constant(self, value: np.ndarray) -> Any:
        """A persistable value that is not trained."""
        block = fluid.default_main_program().global_block()
        dtype = "float32" if value.dtype.kind == "f" else value.dtype.name
        made = block.create_var(
            name=f"c{len(block.vars)}", shape=list(value.shape), dtype=dtype, persistable=True, stop_gradient=True
        )
        self.constants.append(made.name)
        self.set(made.name, value.astype(dtype))
        return made

    def set(self, name: str, value: np.ndarray) -> None:
        """Set a value in the scope."""
        self.scope.var(name).get_tensor().set(value, fluid.CPUPlace())

    def fill_parameters(self) -> None:
        """Assign values to the parameters created by layers."""
        for parameter in fluid.default_main_program().all_parameters():
            if self.scope.find_var(parameter.name) is None:
                self.set(parameter.name, self.rng.uniform(-0.5, 0.5, parameter.shape).astype(np.float32))

    def feed(self, rng: np.random.Generator, lengths: Sequence[int] | None = None) -> dict[str, Any]:
        """A batch, with sequences of these ``lengths`` if the program is fed sequences."""
        if not self.ragged:
            return {name: fill(rng, BATCH) for name, fill in self._fills.items()}
        chosen = list(self.choose(LENGTHS) if lengths is None else lengths)
        rows = sum(chosen)
        place = fluid.CPUPlace()
        return {n: fluid.create_lod_tensor(fill(rng, rows), [chosen], place) for n, fill in self._fills.items()}
