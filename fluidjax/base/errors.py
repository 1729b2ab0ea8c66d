"""The exceptions that Fluid scripts catch, and how messages are worded."""

from __future__ import annotations

from lowering.errors import EnforceNotMet

__all__ = ["ArgumentError", "EOFException", "EnforceNotMet"]


class ArgumentError(EnforceNotMet, ValueError, AssertionError):
    """A layer's argument has a value that does not fit.

    All three kinds that Fluid 1.8.5 raises for this, layer by layer: scripts catch what their layer raised there.
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
    """One message of three parts: what is wrong; expected and received; what to do."""
    return f"{what}\n  expected: {expected}\n  received: {received}\n  what to do: {todo}"
