"""The kinds of fleet."""

__all__ = ["Mode"]


class Mode:
    """The kind of fleet used by a script."""

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3
