"""The exceptions that Fluid scripts catch."""

from __future__ import annotations


class EnforceNotMet(Exception):
    """A condition that Fluid's runtime insists on does not hold."""


class EOFException(Exception):
    """A reader has no more batches."""
