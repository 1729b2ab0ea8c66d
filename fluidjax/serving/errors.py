"""Error answers: a status, and an error in three parts; never a traceback."""

from __future__ import annotations

import re

from fluidjax.base.errors import EnforceNotMet

# A part of an error's text, as ``explain`` and the lowering word errors.
_PART = re.compile(r"\n\s*(expected|received|problem|what to do|to do|built at): ")
_LONGEST = 2000  # characters of a part


class Refused(Exception):
    """A request that is not fulfilled.

    Args:
        status: HTTP status.
        what, expected, received, todo: the parts of the error.
        retry: seconds after which to try again.
    """

    def __init__(self, status: int, what: str, expected: str, received: str, todo: str, retry: int | None = None):
        super().__init__(what)
        self.status = status
        self.parts = {"error": what, "expected": expected, "received": received, "what_to_do": todo}
        self.retry = retry

    def body(self) -> dict[str, str]:
        """The answer, JSON-serialisable."""
        return {name: text if len(text) <= _LONGEST else text[:_LONGEST] + " ..." for name, text in self.parts.items()}

    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {} if self.retry is None else {"Retry-After": str(self.retry)}


def bad_input(what: str, expected: str, received: str, todo: str) -> Refused:
    """The error for invalid inputs."""
    return Refused(400, what, expected, received, todo)


def refusal_of(error: Exception, given: str) -> Refused:
    """Convert an exception of a run to an answer: 422 for invalid inputs, 413 for lack of memory, else 500.

    The source location where the model was built is omitted, as clients cannot use it.

    Args:
        given: a description of the inputs.
    """
    if isinstance(error, Refused):
        return error
    text = str(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text:
        return Refused(
            413, "the memory does not suffice for this request", "smaller inputs", given, "send fewer at once"
        )
    if not isinstance(error, EnforceNotMet | ValueError | TypeError):
        return Refused(
            500,
            "the model could not be run",
            "a result",
            type(error).__name__,
            "the server's log says more; report this if the inputs are as the model wants them",
        )
    what, *rest = _PART.split(text)
    parts = dict(zip(rest[::2], rest[1::2], strict=True))
    return Refused(
        422,
        " ".join([what, *([parts["problem"]] if "problem" in parts else [])]),
        parts.get("expected", "inputs that the model's ops can take"),
        parts.get("received", given),
        parts.get("what to do", parts.get("to do", "GET /model says what the inputs are")),
    )
