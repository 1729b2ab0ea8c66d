"""The kinds of fleet."""

__all__ = ["Mode"]


class Mode:
    """Which kind of fleet a script uses."""

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3
