"""The exceptions that Fluid scripts catch, and how messages are worded."""

from __future__ import annotations

from lowering.errors import EnforceNotMet

__all__ = ["EOFException", "EnforceNotMet"]


class EOFException(Exception):
    """A reader has no more batches."""


def explain(what: str, expected: str, received: str, todo: str) -> str:
    """One message of three parts: what is wrong; expected and received; what to do."""
    return f"{what}\n  expected: {expected}\n  received: {received}\n  what to do: {todo}"
