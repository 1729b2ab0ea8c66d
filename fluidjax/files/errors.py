"""File errors: the problem, what was expected and received, and a remedy."""

from __future__ import annotations

from fluidjax.base.errors import EnforceNotMet, explain


class FileFormatError(EnforceNotMet, ValueError, RuntimeError):
    """The contents of a file violate its format; none of it was used.

    Fluid raises EnforceNotMet for it in ``load_params`` and the like, RuntimeError in ``load`` and in
    ``load_program_state``.
    """


class MissingFileError(EnforceNotMet, FileNotFoundError, RuntimeError):
    """A file of a saved model is missing; see FileFormatError for the other classes."""


class MismatchError(ValueError, AssertionError, RuntimeError):
    """A valid file that does not match the program: a name is missing, or a shape or dtype differs.

    It is also an AssertionError and a RuntimeError, which Fluid's functions raise in such cases.
    """


class UnsafeNameError(ValueError):
    """A variable or file name would lead outside its directory."""


class UntrustedProgramError(PermissionError):
    """A program loaded from a file tries to access the host (files, network, Python) without permission."""


def bad_file(what: str, expected: str, received: str, todo: str = "") -> FileFormatError:
    """A FileFormatError; the default remedy suits most broken files."""
    todo = todo or "copy or save the file again; a file cut short or changed on its way cannot be repaired"
    return FileFormatError(explain(what, expected, received, todo))
