"""``paddle.optimizer``: the optimizers of ``fluid.optimizer``."""

from fluidjax.optimizer import *  # noqa: F403
from fluidjax.optimizer import __all__ as __all__
