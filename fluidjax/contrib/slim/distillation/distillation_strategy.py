"""Training a student beside a teacher for some epochs."""

from __future__ import annotations

from collections.abc import Sequence

from fluidjax.base.errors import explain
from fluidjax.contrib.slim.core.context import Context
from fluidjax.contrib.slim.core.strategy import Strategy
from fluidjax.contrib.slim.distillation.distiller import FSPDistiller, L2Distiller, SoftLabelDistiller

__all__ = ["DistillationStrategy"]

_BEFORE = "distillation_backup_optimize_graph"


class DistillationStrategy(Strategy):
    """From ``start_epoch`` to the one before ``end_epoch``, the distillers' losses are minimised with the student's
    own, by the compressor's ``distiller_optimizer``; then training goes on as it was.

    Args:
        distillers: losses between the student and the first teacher.
        start_epoch, end_epoch: see above.
    """

    def __init__(
        self,
        distillers: Sequence[FSPDistiller | L2Distiller | SoftLabelDistiller] | None = None,
        start_epoch: int = 0,
        end_epoch: int = 0,
    ):
        super().__init__(start_epoch, end_epoch)
        self.distillers = distillers

    def restore_from_checkpoint(self, context: Context) -> None:
        """Join student and teacher again, if the checkpoint lies between the two epochs."""
        if self.start_epoch < context.epoch_id < self.end_epoch:
            self._join(context)

    def on_epoch_begin(self, context: Context) -> None:
        """Join student and teacher, in ``start_epoch``."""
        if context.epoch_id == self.start_epoch:
            self._join(context)

    def on_epoch_end(self, context: Context) -> None:
        """Go back to the student alone, after the last epoch."""
        if context.epoch_id == self.end_epoch - 1:
            context.optimize_graph = context.get(_BEFORE)

    def _join(self, context: Context) -> None:
        if not context.teacher_graphs or context.distiller_optimizer is None:
            expected, todo = (
                "a teacher and an optimizer",
                "pass teacher_programs and distiller_optimizer to the Compressor",
            )
            raise ValueError(explain("a student cannot learn from no one", expected, "none", todo))
        teacher = context.teacher_graphs[0]
        for var in teacher.program.list_vars():
            var.stop_gradient = True
        graph = context.train_graph.clone()
        graph.merge(teacher)
        if "loss" in graph.out_nodes:
            graph.out_nodes["student_loss"] = graph.out_nodes["loss"]
        for distiller in self.distillers or ():
            graph = distiller.distiller_loss(graph)
        context.distiller_optimizer._name = "distillation_optimizer"
        graph.minimize(context.distiller_optimizer, graph.out_nodes["loss"], context.place, context.scope)
        context.put(_BEFORE, context.optimize_graph)
        context.optimize_graph = graph
