"""Parameter servers of the pslib library."""

from fluidjax.base.unbuilt import UnbuiltObject, unbuilt
from fluidjax.incubate.fleet.parameter_server.pslib.optimizer_factory import *  # noqa: F403

PSLib = unbuilt(__name__, "PSLib")
DownpourOptimizer = unbuilt(__name__, "DownpourOptimizer")
fleet_embedding = unbuilt(__name__, "fleet_embedding")
fleet = UnbuiltObject(__name__, "fleet")
