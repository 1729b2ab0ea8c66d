"""The settings of a collective fleet."""

from __future__ import annotations

from typing import Any

from fluidjax.compiler import BuildStrategy, ExecutionStrategy


class DistributedStrategy(BuildStrategy):
    """The strategy of a collective fleet.

    Attributes:
        mode: 'nccl2': data-parallel runs reduce gradients over the workers; 'collective': the program has ops for it.
        collective_mode: 'grad_allreduce' or 'local_sgd'.
        use_local_sgd, _ut4grad_allreduce: equivalent to mode 'collective' with 'local_sgd', or with 'grad_allreduce'.
        forward_recompute, recompute_checkpoints: see ``RecomputeOptimizer``.
        use_amp, amp_loss_scaling: see ``mixed_precision.decorate``.
        exec_strategy: of the CompiledProgram, which mode 'collective' does not make; nor does it read BuildStrategy's.
        use_dist_fc, dist_fc_config: refused: NotBuiltError where ``use_dist_fc`` is set, without which the other is not
            read.
    """

    _defaults = {
        **BuildStrategy._defaults,
        "_ut4grad_allreduce": False,
        "amp_loss_scaling": 2**15,
        "collective_mode": None,
        "dist_fc_config": None,
        "exec_strategy": None,
        "forward_recompute": False,
        "mode": "nccl2",
        "recompute_checkpoints": (),
        "use_amp": False,
        "use_dist_fc": False,
        "use_local_sgd": False,
    }
    mode: str
    collective_mode: str | None
    use_local_sgd: bool
    use_dist_fc: bool
    forward_recompute: bool
    recompute_checkpoints: Any
    use_amp: bool
    amp_loss_scaling: float
    exec_strategy: ExecutionStrategy
    num_trainers: int
    trainer_id: int
    trainers_endpoints: list[str]
    _ut4grad_allreduce: bool

    def __init__(self) -> None:
        super().__init__()
        self.exec_strategy = ExecutionStrategy()
        self.recompute_checkpoints = []


def settle_mode(strategy: DistributedStrategy) -> None:
    """Apply settings implied by others. Raises AssertionError for a collective mode without mode 'collective'."""
    if strategy.use_local_sgd:
        strategy.mode, strategy.collective_mode = "collective", "local_sgd"
    if strategy._ut4grad_allreduce:
        strategy.mode, strategy.collective_mode = "collective", "grad_allreduce"
    assert strategy.collective_mode not in ("local_sgd", "grad_allreduce") or strategy.mode == "collective", (
        "local_sgd and grad_allreduce can be used under collective mode: set mode = 'collective'"
    )
