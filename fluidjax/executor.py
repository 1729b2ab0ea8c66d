"""Executor: runs programs against a Scope."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax

from fluidjax.base.dispatch import compute_in_the_calling_thread
from fluidjax.base.flags import flag
from fluidjax.base.places import Place, checked_place, is_compiled_with_cuda, jax_device
from fluidjax.base.scope import Scope, global_scope, scope_guard
from fluidjax.base.tracebacks import shorten
from fluidjax.base.unknown import unknown_name
from fluidjax.compiler import CompiledProgram
from fluidjax.dataset import DatasetBase, feeds_of, shares_of
from fluidjax.dataset import FetchHandler as FetchHandler
from fluidjax.execution import closing, fork, preparing
from fluidjax.execution.devices.processes import join_for
from fluidjax.execution.devices.shares import one_feed
from fluidjax.execution.executables import kept, largest, preload
from fluidjax.execution.executables.allocator import keep_freed_memory
from fluidjax.execution.feeding.carried import dtype_is_compatible_with as dtype_is_compatible_with
from fluidjax.execution.feeding.carried import has_feed_operators as has_feed_operators
from fluidjax.execution.feeding.carried import has_fetch_operators as has_fetch_operators
from fluidjax.execution.feeding.fetch_list import fetch_names, fetch_targets
from fluidjax.execution.feeding.fetch_list import name_of as _to_name_str  # noqa: F401
from fluidjax.execution.feeding.fits import check_feed_shape_type as check_feed_shape_type
from fluidjax.execution.feeding.fits import dimension_is_compatible_with as dimension_is_compatible_with
from fluidjax.execution.feeding.fits import program_cache_key as _get_strong_program_cache_key  # noqa: F401
from fluidjax.execution.feeding.missing import declared_state, explained, told_of_feeds
from fluidjax.execution.from_dataset import pipelines, run_from_dataset
from fluidjax.execution.native import NativeExecutor
from fluidjax.execution.pruning import Pruning, chosen_optimizers, feed_names, part, pruned
from fluidjax.execution.runs import asked, mode
from fluidjax.execution.runs.prepared import Prepared
from fluidjax.execution.scopes.arrays import as_lodtensor
from fluidjax.execution.scopes.arrays import as_numpy as as_numpy
from fluidjax.execution.scopes.exchange import results
from fluidjax.execution.scopes.fetched import fetched
from fluidjax.execution.scopes.state import NothingToFetch
from fluidjax.execution.scopes.writer import make_state, write_fed
from fluidjax.execution.steps.seeds import next_seed
from fluidjax.framework import Program, default_main_program, program_view
from fluidjax.readers.dump import Texts
from fluidjax.readers.generator import next_feed
from fluidjax.readers.multi_slot import Batch
from fluidjax.readers.prefetch import by_workers
from lowering.engine.x64 import with_device, with_x64
from lowering.errors import OpError, UninitializedError

if TYPE_CHECKING:
    from fluidjax.execution.devices.several import SeveralDevices
    from fluidjax.execution.devices.written import Written

__all__ = ["Executor", "global_scope", "scope_guard"]

_as_lodtensor = as_lodtensor  # the name that tests and older scripts know


class Executor:
    """Runs programs at a place.

    A program is lowered and compiled once for each combination of content, fetch list and feed shapes. Parameters
    remain on the device, in the Scope.

    Args:
        place: ``fluid.CPUPlace()`` (the default) or ``fluid.CUDAPlace(i)``.

    Examples:
        >>> x = fluid.data("x", [None, 2])
        >>> y = fluid.layers.scale(x, 10.0)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> exe.run(feed={"x": np.float32([[1, 2]])}, fetch_list=[y])[0].tolist()
        [[10.0, 20.0]]
    """

    def __init__(self, place: Place | None = None):
        self.place = checked_place(place)
        compute_in_the_calling_thread()
        kept.use_cache(flag("FLAGS_compilation_cache_dir"))
        keep_freed_memory()
        self._closed = False

    @cached_property
    def _device(self) -> jax.Device:
        """The device to compute on; not determined before the processes of a job have joined, as jax requires."""
        return jax_device(self.place)

    @cached_property
    def _is_default(self) -> bool:
        return not is_compiled_with_cuda() and self._device == jax.local_devices()[0]

    @cached_property
    def _default_executor(self) -> NativeExecutor:
        """One that runs descs, at the same place."""
        return NativeExecutor(self.place, self.run, self.close)

    def close(self) -> None:
        """Release the executor, which cannot run programs afterwards, and tell parameter servers that it is done."""
        self._closed = True
        closing.close()

    def run(
        self,
        program: Program | CompiledProgram | None = None,
        feed: Any = None,
        fetch_list: Any = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
        return_merged: bool = True,
        use_prune: bool = False,
    ) -> list[Any]:
        """Run block 0 of a program once.

        Args:
            program: the program; the default main program if None.
            feed: dict from variable name to array (NumPy, LoDTensor, nested lists), or a list of one dict per device.
            fetch_list: variables or names whose values to return.
            feed_var_name, fetch_var_name, use_program_cache: accepted for compatibility; programs are always cached.
            return_merged: on several devices, concatenate their values in a fetch; False: return a list of them, for
                every CompiledProgram.
            scope: the scope; the global scope if None.
            return_numpy: return NumPy arrays; False gives a LoDTensor, a SelectedRows, or a list of them for an array.
            use_prune: run only the ops that the fetches and the program's optimizers need. Operators of an optimizer in
                ``fetch_list`` (what ``minimize`` returned) imply it; then they are the only ones that run.

        Returns:
            The fetched values in the order of ``fetch_list``.

        Raises:
            RuntimeError: the executor is closed, or a fetch with LoD is requested as NumPy.
            ValueError, TypeError: a feed's shape, dtype or type does not match its variable; invalid fetch; no scope.
            lowering.LoweringError: an unknown op, an uninitialized variable, values rejected by an op.
            RuntimeError: XLA ran out of memory in a step; if the step had already taken over the state, it is lost.
        """
        try:
            return self._run(program, feed, fetch_list, scope, return_numpy, use_prune, return_merged)
        except Exception as error:
            ran: Any = getattr(program, "_program", program) or default_main_program()
            if isinstance(error, NothingToFetch):
                error.told_of(ran, fetch_targets(fetch_list))
            elif largest.ran_out(error):
                largest.tell(error, ran, feed)
            shorten(error)
            raise

    def _run(
        self,
        program: Any,
        feed: Any,
        fetch_list: Any,
        scope: Scope | None,
        return_numpy: bool,
        use_prune: bool,
        return_merged: bool,
    ) -> list[Any]:
        fork.check()
        if self._closed:
            raise RuntimeError("Executor.run: the executor is closed; make a new one with fluid.Executor(place)")
        scope = global_scope() if scope is None else scope
        if not isinstance(scope, Scope):
            raise TypeError(
                f"Executor.run: expected a fluid.Scope, received {type(scope).__name__}; leave it out or pass one"
            )
        program = default_main_program() if program is None else program
        feed, fetch_list = {} if feed is None else feed, [] if fetch_list is None else fetch_list
        if "_device" not in self.__dict__:
            self._begin(program)
        found = None if use_prune else self._again(program, feed, fetch_list, scope, return_numpy, return_merged)
        if found is not None:
            return found
        fetches, optimizers = fetch_names(fetch_list), chosen_optimizers(fetch_list)
        if use_prune or optimizers:
            program = _part(program, self._prune_program, feed_names(feed), fetches, optimizers)
        compiled = isinstance(program, CompiledProgram)
        run = None if compiled else partial(self.run, scope=scope)  # compiled: reads first
        program, several = _unwrap(program, self.place, scope)
        if several is not None:
            on_several = partial(several.run, self._run_prepared, self.place, self._device, merge=return_merged)
            for _ in several.unfetched:
                on_several(feed, (), return_numpy)
            known = None if use_prune or several.unfetched else fetch_list
            return on_several(feed, fetches, return_numpy, fetch_list=known)
        read = next_feed(program, one_feed(feed), run)
        prepared = preparing.prepared(program, tuple(read), fetches, self._device.platform, None)
        if read is feed:  # neither names to look up nor readers to ask
            asked.note(program, self._device, feed, fetch_list, fetches, prepared)
        values = self._run_prepared(program, prepared, read, fetches, scope, return_numpy)
        return [[value] for value in values] if compiled and not return_merged else values

    def _again(
        self, program: Any, feed: Any, fetch_list: Any, scope: Scope, return_numpy: bool, return_merged: bool
    ) -> list[Any] | None:
        """Run a program that is asked for the same as the last time; None if it is not, and nothing has happened."""
        compiled = type(program) is CompiledProgram
        if compiled and not program._has_run_at(self.place, scope):
            return None
        several = program._executor if compiled else None
        if several is not None:
            return several.again(self._run_prepared, self.place, feed, fetch_list, return_numpy, merge=return_merged)
        plain = program._program if compiled else program
        last = asked.again(plain, self._device, feed, fetch_list)
        if last is None:
            return None
        values = self._run_prepared(plain, last.prepared, feed, last.fetches, scope, return_numpy)
        return [[value] for value in values] if compiled and not return_merged else values

    def _begin(self, program: Any) -> None:
        """Before the first run: join the processes named by the program, select the device, and load what it needs."""
        inner = program._program if isinstance(program, CompiledProgram) else program
        if isinstance(inner, Program):
            join_for(program_view(inner))
        device = self._device
        if flag("FLAGS_background_compilation"):
            preload.begin(kept.store(), device)

    def _run_prepared(
        self,
        program: Program,
        prepared: Prepared,
        feed: dict[str, Any],
        fetches: tuple[str, ...],
        scope: Scope,
        return_numpy: bool,
        around: Scope | None = None,
        written: Written | None = None,
    ) -> list[Any]:
        try:
            values = mode.again(prepared, scope, feed, program)
            if values is None:
                seed = next_seed(program) if prepared.random else None
                values = self._on_device(mode.run, prepared, scope, feed, seed)
            if prepared.fed_state:
                fed = {n: feed[n] if written is None else written.first(n, feed[n]) for n in prepared.fed_state}
                write_fed(scope if around is None else around, fed, self.place)
            return results(fetches, values, return_numpy)
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # jaxlib raises either where memory runs out
            raise prepared.failure(scope, error)  # noqa: B904  (most often the error itself)
        except UninitializedError as error:
            make_state(scope, declared_state(program))
            raise explained(error, program, feed) from error
        except OpError as error:
            make_state(scope, declared_state(program))
            raise told_of_feeds(error, program, feed)  # noqa: B904  (the error itself)

    def _prune_program(
        self, program: Program, feed: Any = None, fetch_list: Any = None, optimize_ops: Any = None
    ) -> Program:
        """The part of a program needed for the fetches when some variables are fed.

        Args:
            program: left unchanged.
            feed: dict from variable name to value, or a list of such.
            fetch_list: variables or names.
            optimize_ops: the operators of optimizers that are kept; all of the program's if None or empty.
        """
        return pruned(program, feed_names(feed), fetch_names(fetch_list), optimize_ops or ())

    def train_from_dataset(
        self,
        program: Program | CompiledProgram | None = None,
        dataset: DatasetBase | None = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: Any = None,
    ) -> None:
        """Run a program once for each batch of a dataset.

        Args:
            program, scope: as for ``run``.
            dataset: made by ``fluid.DatasetFactory``.
            thread: how many workers share the batches, at most one for each core; 0: as many as ``dataset.set_thread``
                says. They all train the same variables, one step after another, and read and parse files beside each
                other. One worker takes the batches in the order of the files. Programs that ``PipelineOptimizer`` has
                cut have a worker for each stage instead, and ``thread`` times ``queue_size`` batches on their way.
            debug: accepted as in Fluid.
            fetch_list, fetch_info: what to print, and under which names, every ``print_period`` batches.
            fetch_handler: its ``handler`` gets the fetches by name instead.
        """
        if isinstance(program, CompiledProgram):
            program = program._program  # batches go to the threads of one device, in Fluid

        def train(program: Program, dataset: DatasetBase, fetches: list[Any]) -> Iterator[tuple[Texts, list[Any]]]:
            if program._pipeline_opt:
                return self._run_in_stages(program, dataset, fetches, scope, thread)
            return self._run_by_workers(program, dataset, fetches, scope, thread)

        run_from_dataset(train, program, dataset, fetch_list, fetch_info, print_period, fetch_handler)

    def _run_by_workers(
        self, program: Program, dataset: DatasetBase, fetches: list[Any], scope: Scope | None, thread: int
    ) -> Iterator[tuple[Texts, list[Any]]]:
        """The texts of each batch of a data set, and what it fetched, as they are done."""
        scope = global_scope() if scope is None else scope
        count = thread if thread > 0 else dataset.thread_num
        if count <= 0:
            raise RuntimeError(
                "You should set thread num first, either in Dataset or in Executor.train_from_dataset: expected 1 or"
                f" more, received {count}; call dataset.set_thread(n)"
            )

        def step(feed: Batch) -> tuple[Texts, list[Any]]:
            return feed.texts, self.run(program, feed=feed, fetch_list=fetches, scope=scope, return_numpy=False)

        def train(share: Iterator[Batch]) -> tuple[Texts, list[Any]]:
            for feed in share:
                step(feed)
            return (), []

        count = min(count, os.cpu_count() or 1)  # more would only wait for each other
        shares = shares_of(dataset, count) if count > 1 else []
        if len(shares) <= 1:
            return map(step, feeds_of(dataset))
        return by_workers(step, shares) if fetches else by_workers(train, [[share] for share in shares])

    _adjust_pipeline_resource = staticmethod(pipelines)

    def _run_in_stages(
        self, program: Program, dataset: DatasetBase, fetches: list[Any], scope: Scope | None, thread: int
    ) -> Iterator[tuple[Texts, list[Any]]]:
        """The texts of each batch of a data set, and what it fetched, in order."""
        from fluidjax.execution.devices.pipeline import Pipeline

        options, names = program._pipeline_opt, fetch_names(fetches)
        fed = tuple(var.name for var in dataset.use_var)
        key = program._version_token(), fed, names, asked.preparing_flags()
        last, pipeline = program.__dict__.get("_pipeline", (None, None))
        if last != key:
            pipeline = Pipeline(program, fed, names)
            program.__dict__["_pipeline"] = key, pipeline
        ways = max(options["queue_size"], 1) * max(self._adjust_pipeline_resource(options, dataset, max(thread, 1)), 1)
        texts: deque[Texts] = deque()
        done = pipeline.run(global_scope() if scope is None else scope, self._device, feeds_of(dataset, texts), ways)
        return ((texts.popleft(), values) for values in done)

    def infer_from_dataset(
        self,
        program: Program | CompiledProgram | None = None,
        dataset: DatasetBase | None = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: Any = None,
    ) -> None:
        """``train_from_dataset`` for inference programs: parameters change only if the program's ops change them."""
        self.train_from_dataset(
            program, dataset, scope, thread, debug, fetch_list, fetch_info, print_period, fetch_handler
        )

    def _on_device(self, function: Any, *args: Any) -> Any:
        return with_x64(function, *args) if self._is_default else with_device(self._device, function, *args)


def _unwrap(program: Any, place: Place, scope: Scope) -> tuple[Program, SeveralDevices | None]:
    """The underlying program, and the object that runs it on several devices, if any."""
    if isinstance(program, CompiledProgram):
        several = program._run_at(place, scope)
        return (program._program if several is None else several.program), several
    if not isinstance(program, Program):
        raise TypeError(
            f"Executor.run: expected a fluid.Program or fluid.CompiledProgram, received {type(program).__name__};"
            " feeds and fetches have names: exe.run(program, feed={...}, fetch_list=[...])"
        )
    return program, None


def _part(program: Any, prune: Pruning, *wanted: Any) -> Any:
    """The part of a program that the fetches and optimizers need."""
    if isinstance(program, CompiledProgram):
        return program._part(prune, *wanted)
    return part(program, prune, *wanted) if isinstance(program, Program) else program


def _fetch_var(name: str, scope: Scope | None = None, return_numpy: bool = True) -> Any:
    """The value of a variable in a scope (the global scope if None), as NumPy or as the LoDTensor itself.

    Raises AssertionError if the name is not a string or does not exist in the scope.
    """
    if not isinstance(name, str):
        raise AssertionError(f"_fetch_var: expected a name, received {type(name).__name__}; pass var.name")
    var = (global_scope() if scope is None else scope).find_var(name)
    if var is None:
        raise AssertionError(
            f"Cannot find {name!r} in scope: expected the name of a variable that a run left there, received nothing of"
            " that name. Perhaps you need to make the variable persistable by using var.persistable = True"
        )
    tensor = var.get_tensor()
    return fetched(tensor) if return_numpy else tensor


__getattr__ = unknown_name(__name__)
