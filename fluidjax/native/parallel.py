"""``core.ParallelExecutor``: a graph over devices; its feeds are given before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidjax import compiler
from fluidjax.base.containers import FetchList, FetchUnmergedList
from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.base.values import LoDTensor
from fluidjax.executor import Executor


class ParallelExecutor:
    """Runs a graph on devices; see ``fluid.CompiledProgram``.

    Args:
        places: the devices.
        bcast_vars: accepted as in Fluid: every device begins with what the scope holds.
        loss_var_name: the loss; '' where there is none.
        scope: has the parameters.
        local_scopes: a scope for each device, handed out again.
        exec_strategy, build_strategy: see ``with_data_parallel``.
        graph: the graph, a core.Graph.
    """

    BuildStrategy = compiler.BuildStrategy
    ExecutionStrategy = compiler.ExecutionStrategy

    def __init__(
        self,
        places: Sequence[Place],
        bcast_vars: Sequence[str],
        loss_var_name: str,
        scope: Scope,
        local_scopes: Sequence[Scope],
        exec_strategy: compiler.ExecutionStrategy,
        build_strategy: compiler.BuildStrategy,
        graph: Any,
    ) -> None:
        self._places, self._scope, self._local_scopes = list(places), scope, list(local_scopes)
        self._executor = Executor(self._places[0])
        self._compiled = compiler.CompiledProgram(graph, build_strategy).with_data_parallel(
            loss_var_name or None, exec_strategy=exec_strategy, places=self._places
        )
        self._feed: Any = None

    def device_count(self) -> int:
        """How many devices there are."""
        return len(self._places)

    def local_scopes(self) -> list[Scope]:
        """The devices' scopes, as they were given."""
        return list(self._local_scopes)

    def feed_tensors_into_local_scopes(self, tensors: Sequence[Mapping[str, LoDTensor]]) -> None:
        """Feed the next run: for each device tensors by name."""
        self._feed = list(tensors)

    def feed_and_split_tensor_into_local_scopes(self, tensors: Mapping[str, LoDTensor]) -> None:
        """Feed the next run: tensors by name, whose rows the devices share."""
        self._feed = dict(tensors)

    def run(self, fetch_tensors: Sequence[str], return_merged: bool) -> FetchList:
        """Run once.

        Args:
            fetch_tensors: the names of what is fetched.
            return_merged: whether the devices' values come one after the other, in one tensor; or in a list.
        """
        feed, self._feed = self._feed, None
        fetched = self._executor.run(
            self._compiled,
            feed=feed,
            fetch_list=list(fetch_tensors),
            scope=self._scope,
            return_numpy=False,
            return_merged=return_merged,
        )
        return (FetchList if return_merged else FetchUnmergedList)(fetched)

    def drop_local_exe_scopes(self) -> None:
        """Release what runs have kept; here they keep nothing."""
        if self._compiled._executor is not None:
            self._compiled._executor.drop_local_exe_scopes()

    def _need_create_local_exe_scopes(self) -> bool:
        several = self._compiled._executor
        return several is None or several._need_create_local_exe_scopes()
