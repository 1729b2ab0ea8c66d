"""Compressor: trains a network for some epochs, and lets strategies make it smaller meanwhile."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.places import CPUPlace, Place
from fluidjax.base.scope import Scope
from fluidjax.contrib.slim.core import batches, checkpoints
from fluidjax.contrib.slim.core.config import ConfigFactory
from fluidjax.contrib.slim.core.context import Context
from fluidjax.contrib.slim.core.strategy import Strategy
from fluidjax.contrib.slim.graph import GraphWrapper, SlimGraphExecutor
from fluidjax.executor import scope_guard
from fluidjax.framework import Program
from fluidjax.log_helper import get_logger

__all__ = ["Compressor", "Context"]

_logger = get_logger(__name__, logging.INFO, fmt="%(asctime)s-%(levelname)s: %(message)s")
Nodes = list[tuple[str, str]] | None


class Compressor:
    """Runs strategies of compression.

    Args:
        place, scope: where to run, and where the parameters are.
        train_program: the network with its loss, before ``minimize``; or after it, without ``train_optimizer``.
        train_reader: yields batches of samples; or a loader.
        train_feed_list, train_fetch_list: pairs (name for people, name of the variable); one output is ("loss", ...).
        eval_program, eval_reader, eval_feed_list, eval_fetch_list: the same for the evaluation.
        eval_func: name of a metric -> function of (eval_program, scope) that gives it, instead of eval_reader.
        save_eval_model: write what is evaluated with each checkpoint.
        prune_infer_model: (names of inputs, names of outputs): also write the network between them.
        teacher_programs: trained networks to learn from, their parameters in ``scope``.
        checkpoint_path: the folder of checkpoints; one for each epoch. None for none.
        train_optimizer, distiller_optimizer: for training, and for learning from teachers.
        search_space: the networks among which LightNASStrategy searches.
        log_period: training logs every so many batches.

    Raises AssertionError for feed lists that are no lists.
    """

    def __init__(
        self,
        place: Place | None,
        scope: Scope,
        train_program: Program,
        train_reader: Any = None,
        train_feed_list: Nodes = None,
        train_fetch_list: Nodes = None,
        eval_program: Program | None = None,
        eval_reader: Any = None,
        eval_feed_list: Nodes = None,
        eval_fetch_list: Nodes = None,
        eval_func: Mapping[str, Callable[[Program, Scope], float]] | None = None,
        save_eval_model: bool = True,
        prune_infer_model: Sequence[Sequence[str]] | None = None,
        teacher_programs: Sequence[Program] = [],
        checkpoint_path: str | None = None,
        train_optimizer: Any = None,
        distiller_optimizer: Any = None,
        search_space: Any = None,
        log_period: int = 20,
    ):
        for name, nodes in (("train_feed_list", train_feed_list), ("eval_feed_list", eval_feed_list)):
            assert nodes is None or isinstance(nodes, list), explain(
                f"{name} should be a list of tuple",
                "[('image', image.name), ('label', label.name)]",
                repr(nodes),
                "write pairs of a name and the name of a variable",
            )
        assert log_period > 0, explain("log_period", "a positive number", repr(log_period), "pass 1 to log all batches")
        self.strategies: list[Strategy] = []
        self.epoch = 0
        self.place = CPUPlace() if place is None else place
        self.scope = scope
        self.train_graph = GraphWrapper(train_program, train_feed_list, train_fetch_list)
        self.eval_graph = GraphWrapper(eval_program, eval_feed_list, eval_fetch_list)
        self.train_reader = train_reader
        self.eval_reader = eval_reader
        self.eval_func = eval_func
        self.save_eval_model = save_eval_model
        self.prune_infer_model = prune_infer_model
        self.teacher_graphs = [GraphWrapper(teacher) for teacher in teacher_programs]
        self.checkpoint_path = checkpoint_path
        self.eval_epoch = 1
        self.train_optimizer = train_optimizer
        self.distiller_optimizer = distiller_optimizer
        self.init_model: str | None = None
        self.search_space = search_space
        self.log_period = log_period

    def config(self, config_file: str) -> None:
        """Take strategies and settings from a YAML file; see ConfigFactory."""
        settings = ConfigFactory(config_file).compressor
        self.epoch = settings["epoch"]
        for strategy in settings["strategies"]:
            self._add_strategy(strategy)
        for name in ("checkpoint_path", "init_model", "eval_epoch"):
            if name in settings:
                setattr(self, name, settings[name])
        assert self.eval_epoch > 0, explain(
            "eval_epoch", "a positive number", repr(self.eval_epoch), "write 1 for each"
        )

    def _add_strategy(self, strategy: Strategy) -> None:
        self.strategies.append(strategy)
        self.epoch = max(strategy.end_epoch, self.epoch)

    def run(self) -> GraphWrapper:
        """Compress: from the last checkpoint if there is one, else from ``init_model`` or the parameters as they are.

        Returns the graph for evaluation, as the strategies left it.
        """
        context = self.context = self._new_context()
        self._init_model(context)
        context.optimize_graph = self._trained(context)
        self._resume(context)
        for strategy in self.strategies:
            strategy.on_compression_begin(context)
        for epoch in range(context.epoch_id, self.epoch):
            context.epoch_id = epoch
            self._run_epoch(context)
        for strategy in self.strategies:
            strategy.on_compression_end(context)
        return context.eval_graph

    def _new_context(self) -> Context:
        context = Context(
            place=self.place,
            scope=self.scope,
            train_graph=self.train_graph,
            train_reader=self.train_reader,
            eval_graph=self.eval_graph,
            eval_reader=self.eval_reader,
            teacher_graphs=self.teacher_graphs,
            train_optimizer=self.train_optimizer,
            distiller_optimizer=self.distiller_optimizer,
            search_space=self.search_space,
        )
        if self.teacher_graphs:
            context.put("teachers", self.teacher_graphs)
        return context

    def _init_model(self, context: Context) -> None:
        """Read a compressed network's parameters, whose shapes may be smaller than the program's."""
        if not self.init_model or not os.path.exists(self.init_model):
            return
        with scope_guard(context.scope):
            context.train_graph.load_persistables(self.init_model, SlimGraphExecutor(context.place))
        before = context.eval_graph.flops()
        for graph in (context.eval_graph, context.train_graph):
            graph.update_param_shape(context.scope)
            graph.update_groups_of_conv()
        context.train_graph.infer_shape()
        _logger.info(f"Init model from: {self.init_model}; total flops: -{1 - context.eval_graph.flops() / before}")

    def _trained(self, context: Context) -> GraphWrapper:
        if not context.train_optimizer:
            return context.train_graph
        context.train_optimizer._name = "train_opt"
        graph = context.train_graph.get_optimize_graph(context.train_optimizer, context.place, context.scope)
        if graph is None:
            received, todo = str(list(self.train_graph.out_nodes)), "name the loss in train_fetch_list"
            raise ValueError(explain("nothing to minimise", "an output called loss or cost", received, todo))
        return graph

    def _resume(self, context: Context) -> None:
        if self.checkpoint_path:
            folder = checkpoints.load(self.checkpoint_path, context, self.strategies)
            _logger.info(f"Loaded params from: {folder}" if folder else f"No checkpoint in: {self.checkpoint_path}")

    def _run_epoch(self, context: Context) -> None:
        for strategy in self.strategies:
            strategy.on_epoch_begin(context)
        if not context.skip_training:
            self._train_one_epoch(context)
        if context.epoch_id % self.eval_epoch == 0:
            context.evaluate(self.eval_func)
        if self.checkpoint_path:
            settings = self.save_eval_model, self.prune_infer_model
            _logger.info(
                f"Saved checkpoint to: {checkpoints.save(self.checkpoint_path, context, self.strategies, *settings)}"
            )
        for strategy in self.strategies:
            strategy.on_epoch_end(context)

    def _train_one_epoch(self, context: Context) -> None:
        graph, executor = context.optimize_graph, SlimGraphExecutor(self.place)
        if graph.compiled_graph is None:
            graph.compile()

        def step(batch: Any) -> None:
            for strategy in self.strategies:
                strategy.on_batch_begin(context)
            values = [float(np.mean(value)) for value in executor.run(graph, context.scope, batch)]
            if context.batch_id % self.log_period == 0:
                found = dict(zip(graph.out_nodes, [round(v, 6) for v in values], strict=True))
                _logger.info(f"epoch:{context.epoch_id}; batch_id:{context.batch_id}; {found}")
            for strategy in self.strategies:
                strategy.on_batch_end(context)
            context.batch_id += 1

        for _ in batches.results(context.train_reader, step):
            pass
        context.batch_id = 0
