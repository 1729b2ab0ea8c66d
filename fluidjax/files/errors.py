"""Errors about files: what is wrong, what was expected and received, what to do."""

from __future__ import annotations

from fluidjax.base.errors import EnforceNotMet, explain


class FileFormatError(EnforceNotMet, ValueError):
    """A file does not hold what its format says; nothing of it was used."""


class MissingFileError(EnforceNotMet, FileNotFoundError):
    """A file of a saved model is not there; for one of ``load_params`` and its like, Fluid 1.8.5 says EnforceNotMet."""


class MismatchError(ValueError, AssertionError, RuntimeError):
    """A sound file that does not fit the program: a name is missing, or a shape or dtype differs.

    It is an AssertionError and a RuntimeError too, because these are what Fluid raises, function by function.
    """


class UnsafeNameError(ValueError):
    """A variable or file name would reach outside the directory it belongs to."""


class UntrustedProgramError(PermissionError):
    """A program that came from a file wants to act on the host (files, network, Python) without leave."""


def bad_file(what: str, expected: str, received: str, todo: str = "") -> FileFormatError:
    """A FileFormatError; most broken files have one remedy, so it is the default."""
    todo = todo or "copy or save the file again; a file cut short or changed on its way cannot be repaired"
    return FileFormatError(explain(what, expected, received, todo))
