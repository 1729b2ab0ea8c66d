"""The exceptions that Fluid scripts catch."""

from __future__ import annotations

from lowering.errors import EnforceNotMet

__all__ = ["EOFException", "EnforceNotMet"]


class EOFException(Exception):
    """A reader has no more batches."""
