"""How workers and parameter servers keep step."""

from fluidjax.base.unbuilt import unbuilt

TrainerRuntimeConfig = unbuilt(__name__, "TrainerRuntimeConfig")
DistributedStrategy = unbuilt(__name__, "DistributedStrategy")
SyncStrategy = unbuilt(__name__, "SyncStrategy")
AsyncStrategy = unbuilt(__name__, "AsyncStrategy")
HalfAsyncStrategy = unbuilt(__name__, "HalfAsyncStrategy")
GeoStrategy = unbuilt(__name__, "GeoStrategy")
StrategyFactory = unbuilt(__name__, "StrategyFactory")
