"""Searching for the ratio of each layer with a controller."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from fluidjax.contrib.slim.core.context import Context
from fluidjax.contrib.slim.prune.prune_strategy import Backup, PruneStrategy
from fluidjax.contrib.slim.prune.pruner import StructurePruner
from fluidjax.contrib.slim.searcher import SAController
from fluidjax.log_helper import get_logger

__all__ = ["AutoPruneStrategy"]

_logger = get_logger(__name__, logging.INFO, fmt="%(asctime)s-%(levelname)s: %(message)s")
_UNIT = 0.01  # a token is a ratio in hundredths


class AutoPruneStrategy(PruneStrategy):
    """Tries ratios that a controller proposes, judges each by a metric, and prunes by the best of them in the end.

    From ``start_epoch`` on each ``retrain_epoch`` epochs are one try, and with 0 each epoch, without training; in
    ``end_epoch`` the network is pruned by the best ratios, and trained from then on.

    Args:
        pruner, start_epoch, end_epoch, metric_name, pruned_params: see PruneStrategy.
        controller: proposes tokens, ratios in hundredths.
        min_ratio, max_ratio: bounds on the part of the flops that a proposal saves.
        retrain_epoch: see above.
        uniform_range: the tokens of each layer lie below this ratio; None: below those to begin with.
        init_tokens: the tokens to begin with; None: one ratio for all, which saves the middle of the bounds.
    """

    def __init__(
        self,
        pruner: StructurePruner | None = None,
        controller: SAController | None = None,
        start_epoch: int = 0,
        end_epoch: int = 10,
        min_ratio: float = 0.5,
        max_ratio: float = 0.7,
        metric_name: str = "top1_acc",
        pruned_params: str = "conv.*_weights",
        retrain_epoch: int = 0,
        uniform_range: float | None = None,
        init_tokens: Sequence[int] | None = None,
    ):
        super().__init__(pruner, start_epoch, end_epoch, 0.0, metric_name, pruned_params)
        self._min_ratio = min_ratio
        self._max_ratio = max_ratio
        self._controller: Any = controller
        self._retrain_epoch = retrain_epoch
        self._uniform_range = uniform_range
        self._init_tokens = init_tokens
        self._pruned_param_names: list[str] = []
        self._current_tokens: list[int] = []
        self._backup = Backup()

    def on_compression_begin(self, context: Context) -> None:
        """Find the parameters and the tokens to begin with, and set the controller."""
        self._pruned_param_names = self._matching(context.eval_graph)
        self._current_tokens = (
            list(self._init_tokens) if self._init_tokens is not None else self._uniform_tokens(context)
        )
        table = list(self._current_tokens)
        if self._uniform_range is not None:
            table = [round(round(self._uniform_range, 2) / _UNIT)] * len(self._pruned_param_names)
        _logger.info(f"init tokens: {self._current_tokens}; range_table: {table}")
        self._controller.reset(table, self._current_tokens, partial(self._allowed, context))

    def on_epoch_begin(self, context: Context) -> None:
        """Prune by the tokens to try."""
        if self.start_epoch <= context.epoch_id <= self.end_epoch and self._turn(context.epoch_id):
            self._backup = Backup()
            self._prune_by(context, self._current_tokens, self._backup)
            context.skip_training = self._retrain_epoch == 0

    def on_epoch_end(self, context: Context) -> None:
        """Tell the controller how good the tokens were, and undo them; in the end, prune by the best."""
        if self.start_epoch <= context.epoch_id < self.end_epoch and self._turn(context.epoch_id + 1):
            self._controller.update(self._current_tokens, context.eval_results[self.metric_name][-1])
            self._current_tokens = self._controller.next_tokens()
            self._undo(context)
            self._compile(context)
        elif context.epoch_id == self.end_epoch:
            self._undo(context)
            self._prune_by(context, self._controller.best_tokens)
            context.skip_training = False

    def _turn(self, epoch: int) -> bool:
        return self._retrain_epoch == 0 or (epoch - self.start_epoch) % self._retrain_epoch == 0

    def _uniform_tokens(self, context: Context) -> list[int]:
        target = (self._min_ratio + self._max_ratio) / 2
        return [int(r / _UNIT) for r in self._uniform_ratios(context, self._pruned_param_names, target)]

    def _allowed(self, context: Context, tokens: Sequence[int]) -> bool:
        """Whether tokens save as much as they must, and no more than they may."""
        saved = self._saved(context, self._pruned_param_names, [token * _UNIT for token in tokens])
        return self._min_ratio <= saved <= self._max_ratio

    def _prune_by(self, context: Context, tokens: Sequence[int], backup: Backup | None = None) -> None:
        ratios = [token * _UNIT for token in tokens]
        graph = context.optimize_graph
        self._prune_parameters(graph, context.scope, self._pruned_param_names, ratios, context.place, backup=backup)
        self._prune_graph(context.eval_graph, graph)
        self._compile(context)

    def _undo(self, context: Context) -> None:
        self._backup.restore_values(context.scope, context.place)
        self._backup.restore_shapes(context.optimize_graph, context.eval_graph)
        self._backup = Backup()
