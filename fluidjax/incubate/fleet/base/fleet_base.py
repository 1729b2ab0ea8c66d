# ruff: noqa: F401  (names are gathered here)
"""The classes that the kinds of fleet derive from."""

from fluidjax.base.unbuilt import unbuilt
from fluidjax.incubate.fleet.base.mode import Mode

Fleet = unbuilt(__name__, "Fleet")
DistributedOptimizer = unbuilt(__name__, "DistributedOptimizer")
