"""A Fluid program as a pure function of its parameters and inputs, for jit, grad, vmap, scan and optax."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.scope import Scope, global_scope
from fluidjax.execution.scopes.state import gather_values
from fluidjax.execution.scopes.writer import write_back
from fluidjax.export import state
from fluidjax.files import inference
from fluidjax.files.trust import check as check_trusted
from fluidjax.framework import Program, Variable
from fluidjax.framework.view import program_view
from lowering.engine.dataflow import definitions, needs
from lowering.engine.plan import Plan, make_plan
from lowering.engine.runner import Runner
from lowering.engine.shapes.validate import validate
from lowering.engine.x64 import with_x64
from lowering.errors import LoweringError, Need
from lowering.program import OpView, ProgramView
from lowering.registry import get_op
from lowering.sizes.counts import plain
from lowering.wide.calls import check_left, ended
from lowering.wide.spare import SpareRoom
from lowering.wide.widen import widened

Parameters = dict[str, Any]


class ExportError(LoweringError, ValueError):
    """A program cannot be exported as a pure function."""


class JaxFunction:
    """A program as a pure function; created by ``to_jax``.

    ``function(parameters, inputs, key=None)`` returns the fetched values; ``function.step`` also returns the updated
    parameters. Both can be transformed by jax.jit, jax.grad, jax.vmap, jax.lax.scan and so on. Fluid's 64-bit types
    have 64 bits if ``jax_enable_x64`` is set, else 32, as everywhere in JAX.

    Since compiled functions cannot raise, ids out of range are clamped, and if a buffer overflows (see
    ``capacities``), all outputs are NaN, or the smallest integer.

    Attributes:
        feeds, fetches: names of the inputs and outputs, in order.
        written: names of the parameters updated by a run.
        random: whether a run draws random numbers, and therefore needs a key.
    """

    def __init__(
        self,
        program: ProgramView,
        plan: Plan,
        feeds: tuple[str, ...],
        fetches: tuple[str, ...],
        platform: str,
        capacities: Mapping[str, int],
        held: frozenset[str],
    ):
        self.feeds = feeds
        self.fetches = fetches
        self.written = tuple(n for n in plan.keeps if n in held)
        ops = plan.segments[0].ops if plan.segments else ()
        self.random = plan.random and any(
            _draws(op) for op in (*ops, *(op for b in program.blocks[1:] for op in b.ops))
        )
        self._program = program
        self._plan = plan
        self._platform = platform
        self._capacities = dict(capacities)
        self._spare = SpareRoom(widened(program, fetches))
        self._runner_type: type[Runner] = Runner

    @property
    def program(self) -> ProgramView:
        """The ops run by a call."""
        return self._program

    def with_runner(self, runner: type[Runner]) -> JaxFunction:
        """The same function, traced by another type of Runner."""
        other = copy.copy(self)
        other.__dict__.pop("_compiled", None)
        other._runner_type = runner
        return other

    def __call__(self, parameters: Mapping[str, Any], inputs: Any, key: Any = None) -> list[Any]:
        """The fetched values.

        Args:
            parameters: maps names to arrays, as returned by ``to_jax``.
            inputs: maps names to arrays, or a list in the order of ``feeds``; for sequences, use ``fluidjax.ragged``.
            key: a jax.random key, if the program is ``random``.

        Returns a list in the order of ``fetches``; sequences are LoDArrays (``data`` padded, ``lod``, ``nrows``).
        What a loop joins along another axis than the first ends in zeros there, if values decide its number of steps.

        Raises ExportError (at trace time) for missing or unknown inputs, a missing key, and programs that depend on
        concrete values.
        """
        return self.step(parameters, inputs, key)[0]

    def step(self, parameters: Mapping[str, Any], inputs: Any, key: Any = None) -> tuple[list[Any], Parameters]:
        """As a call, but returns (fetched values, updated parameters). The parameters keep their structure."""
        given = (parameters, inputs, key)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(given)):
            return self._traced(*given)
        return self._compiled(*given)

    @cached_property
    def _compiled(self) -> Any:
        """A call with arrays: shapes alone decide what is computed, as in every transformation."""
        return jax.jit(self._traced)

    def _traced(self, parameters: Mapping[str, Any], inputs: Any, key: Any) -> tuple[list[Any], Parameters]:
        env = {**parameters, **self._named(inputs)}
        runner = self._runner(key)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)  # 64 bits where there are 32
            try:
                runner.run_ops(self._plan.segments[0].ops if self._plan.segments else (), env)
                check_left((), map(env.get, self.written), ())
            except Need as needed:
                raise _needs_values(needed) from needed
        outputs = [ended(plain(env[name])) for name in _computed(self.fetches, env)]
        after = {name: plain(env[name]) if name in self.written else value for name, value in parameters.items()}
        return _poisoned((outputs, after), self._overflow(runner))

    def _named(self, inputs: Any) -> dict[str, Any]:
        named = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(self.feeds, inputs, strict=False))
        if set(named) != set(self.feeds) or (not isinstance(inputs, Mapping) and len(inputs) != len(self.feeds)):
            received = sorted(map(str, named)) if isinstance(inputs, Mapping) else f"{len(inputs)} values"
            raise ExportError(
                explain(
                    "the inputs are not those of the program",
                    f"{len(self.feeds)} inputs: {list(self.feeds)}",
                    str(received),
                    "give a dict with these names, or a list in this order",
                )
            )
        return jax.tree_util.tree_map(_as_jax, named)

    def _runner(self, key: Any) -> Runner:
        if self.random and key is None:
            raise ExportError(
                explain(
                    "the program draws random numbers", "a jax.random key", "no key", "pass key=jax.random.key(seed)"
                )
            )
        key = jax.random.key(0) if key is None else key  # for ops that draw in training alone
        if not jnp.issubdtype(jnp.asarray(key).dtype, jax.dtypes.prng_key):
            key = jax.random.wrap_key_data(key, impl="threefry2x32")
        return self._runner_type(
            self._program,
            key=key,
            platform=self._platform,
            capacities=self._capacities,
            spare=self._spare,
            ample=True,
        )

    def _overflow(self, runner: Runner) -> Any:
        unbounded = [name for name in runner.overflows if name not in self._capacities and name not in runner.uneven]
        if unbounded:
            raise ExportError(
                explain(
                    "a buffer of the program has no bound that is known before it runs",
                    f"capacities={{{', '.join(f'{name!r}: <at most>' for name in unbounded)}}}",
                    "none",
                    "give to_jax the largest number of steps, or of rows, that each will need",
                )
            )
        flags = list(runner.overflows.values())
        return None if not flags else jnp.stack([jnp.any(flag) for flag in flags]).any()


def to_jax(
    program: Program | str | os.PathLike[str],
    feeds: Sequence[Any] | None = None,
    fetches: Sequence[Any] | None = None,
    *,
    scope: Scope | None = None,
    platform: str | None = None,
    capacities: Mapping[str, int] | None = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
) -> tuple[JaxFunction, Parameters]:
    """Convert a program or saved model to a pure JAX function and its parameters.

    Args:
        program: a Program, or a directory written by ``save_inference_model``.
        feeds, fetches: variables or names; a saved model has its own. By default, the feeds of a Program are the data
            variables it reads.
        scope: holds the persistable variables of a Program; the global scope if None. Not used for a directory.
        platform: 'cpu', 'gpu' or 'tpu', for which the function will be compiled; jax's default if None.
        capacities: maps names to sizes of otherwise unbounded buffers; the error for a missing one gives its name.
        model_filename, params_filename: as for ``load_inference_model``.

    Returns:
        (function, parameters): a ``JaxFunction``, and a dict with copies of all persistable variables that the program
        reads or writes.

    Raises ExportError for programs with host ops, or variables without a value.
    """
    if isinstance(program, (str, os.PathLike)):
        scope = Scope()
        loaded = inference.load(os.fspath(program), model_filename, params_filename, scope)
        program, feeds, fetches = loaded[0], feeds or loaded[1], fetches or loaded[2]
    scope = global_scope() if scope is None else scope
    check_trusted(program)
    names = tuple(_name(item) for item in fetches or ())
    view = _live(program_view(program), names)
    validate(view)
    plan = make_plan(view, names, ample=True)
    if unbegun := state.unbegun(view, plan.reads, scope):
        view = _live(view, names, unbegun)
        plan = make_plan(view, names, ample=True)
    fed = tuple(_name(item) for item in feeds) if feeds is not None else _data_names(program, plan)
    _check_pure(plan)
    parameters = _parameters(scope, view, plan, fed)
    chosen = jax.default_backend() if platform is None else platform
    function = JaxFunction(view, plan, fed, names, chosen, capacities or {}, frozenset(parameters))
    return function, parameters


def from_jax(parameters: Mapping[str, Any], scope: Scope | None = None) -> None:
    """Copy parameters (a dict of arrays) back to a scope; ``fluid.io.save_*`` then saves them in Paddle's formats.

    Args:
        parameters: as returned by ``to_jax``, or trained since.
        scope: the scope; the global scope if None.
    """
    copies = jax.tree_util.tree_map(lambda leaf: jnp.array(leaf, copy=True), dict(parameters))
    scope = global_scope() if scope is None else scope
    with scope._lock:
        write_back(scope, copies)


def _name(item: Any) -> str:
    return item.name if isinstance(item, Variable) else item


def _live(view: ProgramView, fetches: Sequence[str], unwanted: Set[str] = frozenset()) -> ProgramView:
    """The program without the ops of block 0 that lead to no fetch, to no persistable variable and to no host."""
    block = view.blocks[0]
    wanted = {*fetches, *(v.name for v in block.vars.values() if v.persistable and v.name not in unwanted)}
    kept = []
    for op in reversed(block.ops):
        if get_op(op.type).on_host or not wanted.isdisjoint(definitions(view, op)):
            wanted.update(needs(view, op))
            kept.append(op)
    return replace(view, blocks=(replace(block, ops=tuple(reversed(kept))), *view.blocks[1:]))


def _data_names(program: Program, plan: Plan) -> tuple[str, ...]:
    variables = program.global_block().vars
    return tuple(n for n in plan.reads if n in variables and variables[n].is_data)


def data_needed(program: Program, fetches: Sequence[str]) -> list[str]:
    """What a program reads and neither computes nor keeps: files do not say which variables are data."""
    view = _live(program_view(program), fetches)
    kept = {v.name for v in view.blocks[0].vars.values() if v.persistable}
    return [name for name in make_plan(view, tuple(fetches), ample=True).reads if name not in kept]


def _check_pure(plan: Plan) -> None:
    hosts = [op for segment in plan.segments if segment.host for op in segment.ops]
    if hosts:
        listed = "".join(f"\n    {op.place()}" for op in hosts)
        raise ExportError(
            explain(
                "the program has ops that work on the host",
                "ops that compute on the device alone",
                listed,
                "prune them (Program.clone(for_test=True), or other fetches), or keep running the program by Executor",
            )
        )


def _parameters(scope: Scope, view: ProgramView, plan: Plan, fed: Sequence[str]) -> Parameters:
    reads = [n for n in plan.reads if n not in fed]
    values = gather_values(scope, dict.fromkeys([*reads, *plan.keeps]), exact=True)
    values |= state.first_values(view, [n for n in reads if n not in values])
    persistable = {v.name for v in view.blocks[0].vars.values() if v.persistable}
    missing = [n for n in reads if n not in values and n in persistable]
    if missing:
        raise ExportError(
            explain(
                "variables that the program reads hold no value",
                "a value in the scope, or an input",
                f"none for {missing}",
                "run the startup program or load a model first, or name the variables among feeds",
            )
        )
    return with_x64(jax.tree_util.tree_map, lambda leaf: jnp.array(leaf, copy=True), values)


def _draws(op: OpView) -> bool:
    return "key" in get_op(op.type).special and not op.attrs.get("is_test")


def _as_jax(leaf: Any) -> Any:
    """A JAX array. JAX remembers what it made of a NumPy array in a trace, by identity and without 64 bits: a copy."""
    return jnp.asarray(leaf.copy() if isinstance(leaf, np.ndarray) else leaf)


def _poisoned(results: Any, overflow: Any) -> Any:
    if overflow is None:
        return results

    def bad(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            return jnp.where(overflow, jnp.nan, leaf).astype(leaf.dtype)
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jnp.where(overflow, jnp.iinfo(leaf.dtype).min, leaf).astype(leaf.dtype)
        return leaf

    return jax.tree_util.tree_map(bad, results)


def _computed(names: tuple[str, ...], env: Mapping[str, Any]) -> tuple[str, ...]:
    if not (absent := [name for name in names if name not in env]):
        return names
    lost, some = ", ".join(map(repr, absent)), "fetches that the program computes, holds or is fed"
    raise ExportError(explain("there is nothing to return", some, f"{lost}, which no op writes", "name other fetches"))


def _needs_values(needed: Need) -> ExportError:
    return ExportError(
        explain(
            f"the program cannot run as one function of shapes alone: {needed.refusal()}",
            "ops whose output sizes follow from the shapes of the inputs",
            "one that must look at values first",
            "keep running this program by Executor, or fetch what does not depend on that op",
        )
    )
