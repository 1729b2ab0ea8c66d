"""``paddle.imperative``: eager mode, by the names that Paddle 2's alpha had for ``fluid.dygraph``."""

from fluidjax.dygraph import (
    BackwardStrategy,
    CosineDecay,
    DataParallel,
    ExponentialDecay,
    InverseTimeDecay,
    LayerList,
    NaturalExpDecay,
    NoamDecay,
    ParallelEnv,
    ParameterList,
    PiecewiseDecay,
    PolynomialDecay,
    ProgramTranslator,
    Sequential,
    TracedLayer,
    declarative,
    disable_dygraph,
    enable_dygraph,
    enabled,
    grad,
    guard,
    no_grad,
    prepare_context,
    to_variable,
)
from fluidjax.dygraph import load_dygraph as load
from fluidjax.dygraph import save_dygraph as save

__all__ = [
    "BackwardStrategy", "CosineDecay", "DataParallel", "ExponentialDecay", "InverseTimeDecay", "LayerList",
    "NaturalExpDecay", "NoamDecay", "ParallelEnv", "ParameterList", "PiecewiseDecay", "PolynomialDecay",
    "ProgramTranslator", "Sequential", "TracedLayer", "declarative", "disable_dygraph", "enable_dygraph", "enabled",
    "grad", "guard", "load", "no_grad", "prepare_context", "save", "to_variable",
]  # fmt: skip
