"""``fluid.debugger`` under the name that it had before Fluid 1.0."""

from fluidjax.debugger import *  # noqa: F403
from fluidjax.debugger import __all__ as __all__
