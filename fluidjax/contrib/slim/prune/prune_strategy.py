"""Taking filters away before training: the same ratio of each layer, or most of where it costs least."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.contrib.slim.core.context import Context
from fluidjax.contrib.slim.core.strategy import Strategy
from fluidjax.contrib.slim.graph import GraphWrapper
from fluidjax.contrib.slim.graph.tensors import tensor_of
from fluidjax.contrib.slim.prune import sensitivity
from fluidjax.contrib.slim.prune.pruner import StructurePruner
from fluidjax.contrib.slim.prune.related import Cut, accumulators, cuts
from fluidjax.files import pickles
from fluidjax.files.atomic import write_file
from fluidjax.log_helper import get_logger

__all__ = ["PruneStrategy", "SensitivePruneStrategy", "UniformPruneStrategy"]

_logger = get_logger(__name__, logging.INFO, fmt="%(asctime)s-%(levelname)s: %(message)s")
_HALVINGS = 50  # of a search for a ratio; after these it moves by less than a float can tell


@dataclass
class Backup:
    """What parameters were before they were pruned: to try, and to go back."""

    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)

    def restore_shapes(self, *graphs: GraphWrapper) -> None:
        """Declare the shapes again."""
        for graph in graphs:
            for name, shape in self.shapes.items():
                if graph.program.global_block().has_var(name):
                    graph.var(name).set_shape(shape)

    def restore_values(self, scope: Scope, place: Place) -> None:
        """Put the values back."""
        for name, value in self.values.items():
            tensor_of(scope, name).set(value, place)


class _Knife(NamedTuple):
    """Where cuts are made, and how; see PruneStrategy._prune_parameters."""

    graph: GraphWrapper
    scope: Scope
    place: Place
    lazy: bool
    only_graph: bool
    backup: Backup | None

    def apply(self, cut: Cut, pruner: StructurePruner) -> list[str]:
        """Cut a parameter and what optimizers keep for it; their names."""
        params = [cut.param, *accumulators(self.graph, cut.param)]
        for param in params:
            tensor = tensor_of(self.scope, param.name())
            if self.backup is not None:
                self.backup.shapes.setdefault(param.name(), param.shape())
                if param.name() not in self.backup.values:
                    self.backup.values[param.name()] = np.array(tensor)
            if not self.only_graph:
                tensor.set(pruner.prune_tensor(np.array(tensor), cut.indices, cut.axis, lazy=self.lazy), self.place)
            if not self.lazy:
                shape = list(param.shape())
                shape[cut.axis] -= len(cut.indices)
                param.set_shape(shape)
        return [param.name() for param in params]


class PruneStrategy(Strategy):
    """Base class of strategies that prune.

    Args:
        pruner: chooses the filters, a StructurePruner.
        start_epoch, end_epoch: see Strategy.
        target_ratio: the part of the flops to save.
        metric_name: the output of the evaluation by which the network is judged.
        pruned_params: a regular expression that the names of the filters to prune begin with.
    """

    def __init__(
        self,
        pruner: StructurePruner | None = None,
        start_epoch: int = 0,
        end_epoch: int = 0,
        target_ratio: float = 0.5,
        metric_name: str | None = None,
        pruned_params: str = "conv.*_weights",
    ):
        super().__init__(start_epoch, end_epoch)
        self.pruner: Any = pruner  # needed when it prunes, not when it is configured
        self.target_ratio = target_ratio
        self.metric_name: Any = metric_name  # needed by strategies that evaluate
        self.pruned_params = pruned_params
        self.pruned_list: list[list[str]] = [[], []]  # what was cut along axis 0, and along axis 1

    def _matching(self, graph: GraphWrapper) -> list[str]:
        return [p.name() for p in graph.all_parameters() if re.match(self.pruned_params, p.name())]

    def _eval_graph(self, context: Context, sampled_rate: float | None = None, cached_id: int = 0) -> float:
        """The metric of the network as it is, on a part of the data if ``sampled_rate`` is given."""
        results, names = context.run_eval_graph(sampled_rate, cached_id)
        return float(np.mean(results[list(names).index(self.metric_name)]))

    def _prune_parameters(
        self,
        graph: GraphWrapper,
        scope: Scope,
        params: Iterable[str],
        ratios: Iterable[float],
        place: Place,
        lazy: bool = False,
        only_graph: bool = False,
        backup: Backup | None = None,
    ) -> None:
        """Cut a ratio of the filters of each parameter, and all that follows from it, optimizers' state included.

        Args:
            graph: where shapes are declared anew.
            scope: where the values are; they decide which filters go.
            lazy: put zeros there instead.
            only_graph: declare the shapes alone.
            backup: takes what was there before.
        """
        self.pruned_list = [[], []]
        knife = _Knife(graph, scope, place, lazy, only_graph, backup)
        for name, ratio in zip(params, ratios, strict=True):
            if name in self.pruned_list[0]:
                continue
            values = np.array(tensor_of(scope, name))
            indices = self.pruner.cal_pruned_idx(name, values, ratio, axis=0)
            for cut in cuts(graph, graph.var(name), indices):
                if cut.param.name() not in self.pruned_list[cut.axis]:
                    self.pruned_list[cut.axis].extend(knife.apply(cut, self.pruner))

    def _prune_graph(self, graph: GraphWrapper, target_graph: GraphWrapper) -> None:
        """Declare the parameters of ``graph`` with the shapes that they have in ``target_graph``."""
        for param in target_graph.all_parameters():
            graph.var(param.name()).set_shape(param.shape())

    def _prune(self, context: Context, params: Sequence[str], ratios: Sequence[float]) -> None:
        """Prune what is trained, and tell what is evaluated."""
        size, flops = context.eval_graph.numel_params(), context.eval_graph.flops()
        self._prune_parameters(context.optimize_graph, context.scope, params, ratios, context.place)
        self._prune_graph(context.eval_graph, context.optimize_graph)
        self._compile(context)
        size, flops = 1 - context.eval_graph.numel_params() / size, 1 - context.eval_graph.flops() / flops
        _logger.info(f"Pruned size: {size:.2f}; pruned flops: {flops:.2f}")

    def _compile(self, context: Context) -> None:
        context.optimize_graph.update_groups_of_conv()
        context.eval_graph.update_groups_of_conv()
        context.optimize_graph.compile()

    def _saved(self, context: Context, params: Sequence[str], ratios: Sequence[float]) -> float:
        """The part of the flops that pruning so would save."""
        graph, backup = context.eval_graph, Backup()
        before = graph.flops()
        self._prune_parameters(graph, context.scope, params, ratios, context.place, only_graph=True, backup=backup)
        after = graph.flops()
        backup.restore_shapes(graph)
        return 1 - after / before

    def _uniform_ratios(self, context: Context, params: Sequence[str], target: float) -> list[float]:
        """One ratio for all that saves ``target`` of the flops, to 0.01: by halving an interval."""
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            ratio = (low + high) / 2
            saved = self._saved(context, params, [ratio] * len(params))
            if abs(saved - target) < 1e-2:
                break
            low, high = (low, ratio) if saved > target else (ratio, high)
        _logger.info(f"Get ratios: {round(ratio, 2)} of each of {len(params)} parameters, {saved:.3f} of the flops")
        return [ratio] * len(params)


class UniformPruneStrategy(PruneStrategy):
    """Prunes all filters by one ratio in ``start_epoch``, so that ``target_ratio`` of the flops are saved."""

    params: Sequence[str] = ()
    ratios: Sequence[float] = ()

    def on_epoch_begin(self, context: Context) -> None:
        """Prune, if it is the epoch to start in."""
        if context.epoch_id == self.start_epoch:
            self.params = self._matching(context.eval_graph)
            self.ratios = self._uniform_ratios(context, self.params, self.target_ratio)
            self._prune(context, self.params, self.ratios)

    def restore_from_checkpoint(self, context: Context) -> None:
        """Prune as much as when the checkpoint was made."""
        if self.params:
            self._prune(context, self.params, self.ratios)


class SensitivePruneStrategy(PruneStrategy):
    """Prunes each layer so far that all lose equally much of the metric, and ``target_ratio`` of the flops are saved.

    For each layer the loss of the metric is measured at the ratios ``delta_rate``, 2 ``delta_rate`` ... below 1, and a
    cubic polynomial is fitted.

    Args:
        pruner, start_epoch, end_epoch, target_ratio, metric_name, pruned_params: see PruneStrategy.
        delta_rate: see above.
        sensitivities_file: where the measurements are kept, as 1.8.5 keeps them; those found there are not made again.
        sensitivities: is accepted, as in 1.8.5, and not read.
        num_steps: how often to prune: in ``start_epoch``, and then whenever the metric has converged.
        eval_rate: the part of the evaluation's data to measure with; None for all.
    """

    def __init__(
        self,
        pruner: StructurePruner | None = None,
        start_epoch: int = 0,
        end_epoch: int = 0,
        delta_rate: float = 0.20,
        target_ratio: float = 0.5,
        metric_name: str = "top1_acc",
        pruned_params: str = "conv.*_weights",
        sensitivities_file: str = "./sensitivities.data",
        sensitivities: dict[str, Any] | None = None,
        num_steps: int = 1,
        eval_rate: float | None = None,
    ):
        super().__init__(pruner, start_epoch, end_epoch, target_ratio, metric_name, pruned_params)
        self.delta_rate = delta_rate
        self.sensitivities = sensitivities or {}
        self.sensitivities_file = sensitivities_file
        self.num_steps = num_steps
        self.eval_rate = eval_rate
        self.pruning_step = 1 - (1 - target_ratio) ** (1.0 / num_steps)

    def on_epoch_begin(self, context: Context) -> None:
        """Measure and prune, if a step is due."""
        done: list[Any] = getattr(self, "pruned_steps", [])
        converged = context.eval_converged(self.metric_name, 0.005)
        if len(done) >= self.num_steps or not (context.epoch_id == self.start_epoch or converged):
            return
        params, ratios = self._best_ratios(context, self._measured(context))
        self._prune(context, params, ratios)
        self.pruned_steps = [*done, [params, ratios]]
        _logger.info(f"Metric after pruning: {self._eval_graph(context):.2f}")

    def restore_from_checkpoint(self, context: Context) -> None:
        """Prune as often and as much as when the checkpoint was made."""
        for params, ratios in getattr(self, "pruned_steps", []):
            self._prune(context, params, ratios)

    def _measured(self, context: Context) -> sensitivity.Table:
        """What the metric loses, by layer and ratio; kept in the file after each measurement."""
        first = context.epoch_id == self.start_epoch
        file = self.sensitivities_file if first else f"{self.sensitivities_file}.epoch{context.epoch_id}"
        table = _read(file)
        for name in self._matching(context.eval_graph):
            table.setdefault(name, {"pruned_percent": [], "loss": [], "size": context.eval_graph.var(name).shape()[0]})
        sample = int(np.random.randint(1000))
        whole = None
        for name in list(table):
            for ratio in sensitivity.ratios(self.delta_rate):
                if ratio in table[name]["pruned_percent"]:
                    continue
                whole = self._eval_graph(context, self.eval_rate, sample) if whole is None else whole
                loss = whole - self._without(context, name, ratio, sample)
                _logger.info(f"pruned param: {name}; {ratio}; loss={loss}")
                for other in self.pruned_list[0]:  # those that cannot be pruned without this one
                    if re.match(self.pruned_params, other):
                        entry = table.setdefault(other, {"pruned_percent": [], "loss": []})
                        entry["pruned_percent"].append(ratio)
                        entry["loss"].append(loss)
                write_file(file, [pickles.dumps(table)])
        return table

    def _without(self, context: Context, name: str, ratio: float, sample: int) -> float:
        backup = Backup()
        graph, scope, place = context.eval_graph, context.scope, context.place
        try:
            self._prune_parameters(graph, scope, [name], [ratio], place, lazy=True, backup=backup)
            return self._eval_graph(context, self.eval_rate, sample)
        finally:
            backup.restore_values(scope, place)

    def _best_ratios(self, context: Context, table: sensitivity.Table) -> tuple[list[str], list[float]]:
        """The ratios at which all lose equally much, and which save what one step has to: by halving an interval."""
        params, curves = list(table), {name: sensitivity.fitted(entry) for name, entry in table.items()}
        low, high = 0.0, max([0.0, *(loss for entry in table.values() for loss in entry["loss"])])
        ratios = [0.0] * len(params)
        for _ in range(_HALVINGS):
            loss = (low + high) / 2
            ratios = [sensitivity.ratio_at(curves[name], loss, table[name]) for name in params]
            saved = self._saved(context, params, ratios)
            if abs(saved - self.pruning_step) < 0.015:
                break
            low, high = (low, loss) if saved > self.pruning_step else (loss, high)
        return params, ratios


def _read(file: str) -> sensitivity.Table:
    if not os.path.exists(file):
        return {}
    with open(file, "rb") as opened:
        table = pickles.loads(opened.read(), file)
    for entry in table.values():
        entry["pruned_percent"] = [round(float(p), 2) for p in entry["pruned_percent"]]
        entry["loss"] = [float(loss) for loss in entry["loss"]]
    return table
