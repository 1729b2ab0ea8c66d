# ruff: noqa: F401  (names are gathered here)
"""Parameter servers made of programs, which the transpiler writes."""

from fluidjax.base.unbuilt import UnbuiltObject, unbuilt
from fluidjax.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import (
    AsyncStrategy,
    DistributedStrategy,
    GeoStrategy,
    HalfAsyncStrategy,
    StrategyFactory,
    SyncStrategy,
    TrainerRuntimeConfig,
)

DistributedTranspiler = unbuilt(__name__, "DistributedTranspiler")
TranspilerOptimizer = unbuilt(__name__, "TranspilerOptimizer")
fleet = UnbuiltObject(__name__, "fleet")
