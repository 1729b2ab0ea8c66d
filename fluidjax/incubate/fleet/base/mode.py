"""The kinds of fleet."""


class Mode:
    """Which kind of fleet a script uses."""

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3
