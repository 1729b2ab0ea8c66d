"""Running a graph on batches of a reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.contrib.slim.graph.graph_wrapper import GraphWrapper
from fluidjax.data_feeder import DataFeeder
from fluidjax.executor import Executor

__all__ = ["GraphWrapper", "SlimGraphExecutor"]  # the package adds to this list in 1.8.5


class SlimGraphExecutor:
    """Runs a graph's program, compiled if it was, and fetches its ``out_nodes``.

    Args:
        place: where to run.
    """

    def __init__(self, place: Place):
        self.exe = Executor(place)
        self.place = place

    def run(self, graph: GraphWrapper, scope: Scope, data: Sequence[Any] | None = None) -> list[Any]:
        """The values of ``graph.out_nodes``, in their order.

        Args:
            data: a batch: samples, tuples in the order of ``graph.in_nodes``; or feeds, as a loader yields. None for
                a program that reads by itself.
        """
        program = graph.compiled_graph if graph.compiled_graph is not None else graph.program
        return self.exe.run(
            program, feed=self._feed(graph, data), fetch_list=list(graph.out_nodes.values()), scope=scope
        )

    def _feed(self, graph: GraphWrapper, data: Sequence[Any] | None) -> Any:
        if data is None or isinstance(data[0], dict):
            return data
        return DataFeeder(list(graph.in_nodes.values()), self.place, graph.program).feed(data)
