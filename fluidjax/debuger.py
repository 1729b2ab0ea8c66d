"""``fluid.debugger`` under its name before Fluid 1.0."""

from fluidjax.debugger import *  # noqa: F403
from fluidjax.debugger import __all__ as __all__
