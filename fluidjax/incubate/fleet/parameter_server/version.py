"""Which of the two kinds of parameter server is in use."""


def is_transpiler() -> bool:
    """Whether it is the transpiler's, as in Fluid's wheels."""
    return True
