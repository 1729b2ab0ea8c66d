"""What stands for values and places on the tape while a step is promised (see ``promised``)."""

from __future__ import annotations

from typing import Any

from fluidjax.eager.backward.tape import Node
from fluidjax.eager.values import Spec, Value


class Held:
    """What a variable that the step computes holds while it is promised.

    Attributes:
        promise: the step.
        code: the number of the output.
        spec: of the value.
    """

    __slots__ = ("code", "promise", "spec")

    def __init__(self, promise: Any, code: int, spec: Spec) -> None:
        self.promise, self.code, self.spec = promise, code, spec

    def now(self) -> Value | None:
        """The value."""
        return self.promise.value(self.code, self.spec)

    def stopping(self, stop: bool) -> None:
        """The variable is about to be stopped, or the contrary: whatever read it has to have read it as it was."""
        if not stop or not self.promise.is_unread(self.code):
            self.promise.settle()

    def becomes(self, value: Value | None) -> Value | None:
        """What the variable holds once a value is assigned to it."""
        self.promise.settle()
        return value


class PromisedNode(Node):
    """The place on the tape of all that the step computes before the backward pass.

    Attributes:
        promise: the step.
        zeros: see ``Step``.
        real: the place of each variable, once they have been recorded.
    """

    __slots__ = ("promise", "real", "zeros")

    def __init__(self, promise: Any, zeros: frozenset[int]) -> None:
        self.order, self.inputs, self.parents, self.specs = -1, (), (), ()
        self.freed = self.passed = False
        self.promise, self.zeros = promise, zeros
        self.real: list[Any] | None = None

    def at(self, k: int) -> Any:
        """See Node."""
        if self.real is None:
            self.promise.settle()
        place = None if self.real is None else self.real[k]
        return (self, k) if place is None else place[0].at(place[1])

    def took_zeros(self, k: int) -> bool:
        """See Node."""
        return self.passed and k in self.zeros
