"""What strategies share during a compression."""

from __future__ import annotations

import logging
from collections.abc import Callable, KeysView, Mapping
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.contrib.slim.core import batches
from fluidjax.contrib.slim.graph import GraphWrapper, SlimGraphExecutor
from fluidjax.files import pickles
from fluidjax.files.atomic import write_file
from fluidjax.log_helper import get_logger

_logger = get_logger(__name__, logging.INFO, fmt="%(asctime)s-%(levelname)s: %(message)s")
_LOG_PERIOD = 20


class Context:
    """The graphs, readers and results of a compression.

    Args:
        place, scope: where it runs and where the parameters are.
        train_graph, train_reader: what is trained, without gradients.
        eval_graph, eval_reader: what is evaluated.
        teacher_graphs: networks to learn from.
        train_optimizer, distiller_optimizer: for training and for learning from teachers.
        search_space: the networks among which LightNASStrategy searches.

    Attributes:
        epoch_id, batch_id: where the compression is.
        optimize_graph: what runs for each batch of training, with gradients and updates.
        eval_results: name of a metric -> its value after each evaluation.
        skip_training: set by a strategy to have no batches trained.
        cache_path: where samples of the evaluation's data are kept.
    """

    def __init__(
        self,
        place: Place,
        scope: Scope,
        train_graph: GraphWrapper | None = None,
        train_reader: Any = None,
        eval_graph: GraphWrapper | None = None,
        eval_reader: Any = None,
        teacher_graphs: list[GraphWrapper] | None = None,
        train_optimizer: Any = None,
        distiller_optimizer: Any = None,
        search_space: Any = None,
    ):
        self.epoch = 0
        self.epoch_id = 0
        self.batch_id = 0
        self.k_v: dict[str, Any] = {}
        self.place = place
        self.scope = scope
        # Strategies know which of these a compression has.
        self.train_graph: Any = train_graph
        self.train_reader = train_reader
        self.eval_graph: Any = eval_graph
        self.eval_reader = eval_reader
        self.executor = None
        self.teacher_graphs = teacher_graphs or []
        self.train_optimizer = train_optimizer
        self.distiller_optimizer = distiller_optimizer
        self.optimize_graph: Any = None
        self.cache_path = "./eval_cache"
        self.eval_results: dict[str, list[float]] = {}
        self.skip_training = False
        self.search_space = search_space

    def to_file(self, file_name: str) -> None:
        """Write the number of the epoch and the results so far, as 1.8.5 does."""
        found = {name: [float(v) for v in values] for name, values in self.eval_results.items()}
        write_file(file_name, [pickles.dumps({"epoch_id": self.epoch_id, "eval_results": found})])

    def from_file(self, file_name: str) -> None:
        """Read what ``to_file`` wrote, without running anything that the file says."""
        with open(file_name, "rb") as file:
            data = pickles.loads(file.read(), file_name)
        self.epoch_id = int(data["epoch_id"])
        self.eval_results = data["eval_results"]

    def eval_converged(self, metric_name: str, delta: float = 0.001) -> bool:
        """Whether |m[k] - m[k-1]| / m[k-1] < delta for the last two values of a metric."""
        last = self.eval_results.get(metric_name, [])[-2:]
        return len(last) == 2 and bool(abs(last[1] - last[0]) / last[0] < delta)

    def run_eval_graph(self, sampled_rate: float | None = None, cached_id: int = 0) -> tuple[list[Any], KeysView[str]]:
        """The mean of each output of the evaluation over its batches, and the names of the outputs.

        Args:
            sampled_rate: how much of the data to take; None for all.
            cached_id: the number of the sample: the same data for the same number.
        """
        assert self.eval_graph is not None and self.eval_reader is not None, explain(
            "there is nothing to evaluate", "eval_program and eval_reader", "None", "pass them to the Compressor"
        )
        graph, reader = self.eval_graph.clone(for_test=True), self.eval_reader
        if sampled_rate:
            reader = batches.sampled(reader, sampled_rate, self.cache_path, cached_id)
        executor = SlimGraphExecutor(self.place)
        found = []
        for at, values in enumerate(batches.results(reader, lambda batch: executor.run(graph, self.scope, batch))):
            found.append([np.mean(value) for value in values])
            if at % _LOG_PERIOD == 0:
                _logger.info(f"batch-{at}; {list(graph.out_nodes)}={found[-1]}")
        means = list(np.mean(np.array(found), axis=0))
        _logger.info(f"Final eval result: {list(graph.out_nodes)}={means}")
        return means, graph.out_nodes.keys()

    def evaluate(self, eval_func: Mapping[str, Callable[[Any, Scope], float]] | None) -> None:
        """Append to ``eval_results`` what functions of (program, scope) say, or what the evaluation gives."""
        if eval_func is not None:
            found = {name: judge(self.eval_graph.program, self.scope) for name, judge in eval_func.items()}
        else:
            means, names = self.run_eval_graph()
            found = dict(zip(names, means, strict=True))
        for name, value in found.items():
            self.eval_results.setdefault(name, []).append(value)

    def put(self, key: str, value: Any) -> None:
        """Keep something for other strategies."""
        self.k_v[key] = value

    def get(self, key: str) -> Any:
        """What was put under a name, or None."""
        return self.k_v.get(key)
