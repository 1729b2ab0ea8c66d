"""Exceptions that Fluid scripts catch, and the format of messages."""

from __future__ import annotations

from lowering.errors import EnforceNotMet

__all__ = ["ArgumentError", "EOFException", "EnforceNotMet"]


class ArgumentError(EnforceNotMet, ValueError, AssertionError):
    """A layer's argument has an invalid value.

    Derives from all three types that Fluid 1.8.5 raises here, depending on the layer: scripts catch their layer's.
    """


class EOFException(Exception):
    """A reader has no more batches.

    Examples:
        >>> x = fluid.data("x", [None, 1])
        >>> loader = fluid.io.DataLoader.from_generator([x], capacity=2, iterable=False)
        >>> loader = loader.set_batch_generator(lambda: iter([[np.ones((2, 1), "float32")]]))
        >>> loader.start()
        >>> y, exe, steps = fluid.layers.mean(x), fluid.Executor(), 0
        >>> try:
        ...     while True:
        ...         steps += len(exe.run(fetch_list=[y]))
        ... except fluid.core.EOFException:
        ...     loader.reset()
        >>> steps
        1
    """


def explain(what: str, expected: str, received: str, todo: str) -> str:
    """Format a message in three parts: what is wrong; expected and received; what to do."""
    return f"{what}\n  expected: {expected}\n  received: {received}\n  what to do: {todo}"
