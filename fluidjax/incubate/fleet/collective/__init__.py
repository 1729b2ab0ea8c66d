"""Fleet whose workers exchange gradients among themselves."""

from fluidjax.base.unbuilt import UnbuiltObject, unbuilt

Collective = unbuilt(__name__, "Collective")
CollectiveOpBasedOptimizer = unbuilt(__name__, "CollectiveOpBasedOptimizer")
CollectiveOptimizer = unbuilt(__name__, "CollectiveOptimizer")
DistFCConfig = unbuilt(__name__, "DistFCConfig")
DistributedStrategy = unbuilt(__name__, "DistributedStrategy")
LambConfig = unbuilt(__name__, "LambConfig")
TrainStatus = unbuilt(__name__, "TrainStatus")
fleet = UnbuiltObject(__name__, "fleet")
