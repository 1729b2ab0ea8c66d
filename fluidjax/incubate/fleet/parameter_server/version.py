"""Which of the two kinds of parameter server is in use: the transpiler's, as in Fluid's wheels."""

from fluidjax.incubate.fleet.base.mode import Mode

BUILD_MODE = Mode.TRANSPILER


def is_transpiler() -> bool:
    """Whether it is the transpiler's."""
    return BUILD_MODE == Mode.TRANSPILER
