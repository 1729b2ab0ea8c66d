"""The place on the tape of what a Python function computes, with another one as its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fluidjax.eager.backward.engine import Engine
from fluidjax.eager.backward.tape import UNWANTED, Node, Place, places


class PythonNode(Node):
    """A node whose gradient is a Python function from the gradients of the outputs to those of the inputs.

    Args:
        inputs: variables.
        outputs: variables; they become results of this node.
        backward: takes a list of variables (None for an output without a gradient) and returns as many as there are
            inputs, None for those without one.
    """

    __slots__ = ("backward",)

    def __init__(
        self, inputs: Sequence[Any], outputs: Sequence[Any], backward: Callable[[list[Any]], Sequence[Any]]
    ) -> None:
        super().__init__(tuple(inputs), places(inputs), [v._spec for v in outputs])
        self.backward: Callable[[list[Any]], Sequence[Any]] | None = backward
        for k, var in enumerate(outputs):
            var._place = self, k
            if var._stop_gradient is None:
                var._stop_gradient = False

    def free(self) -> None:
        """See Node."""
        super().free()
        self.backward = None

    def gradients(self, engine: Engine, grads: list[Any]) -> Iterable[tuple[Any, Place, Any]]:
        """See Node."""
        assert self.backward is not None
        given = [None if g is None else engine.as_variable(g) for g in grads]
        with engine.python():
            results = self.backward(given)
        each = zip(self.inputs, self.parents, results, strict=True)
        return [(v, p, engine.as_given(g)) for v, p, g in each if p is not UNWANTED and g is not None]
