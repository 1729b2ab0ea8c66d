"""``check_grad``: verifies a program's gradients in three ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import lowering
from fluidjax.backward.paths import forward_of
from fluidjax.base.mode import tracer_guard
from fluidjax.base.scope import Scope, global_scope
from fluidjax.base.values import LoDTensor
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.execution.feeding.feed import Feeder
from fluidjax.execution.scopes.state import gather_values
from fluidjax.files.trust import check as check_trusted
from fluidjax.framework import Program, Variable
from fluidjax.framework.view import program_view
from fluidjax.gradcheck import beside, local
from fluidjax.gradcheck.compiled import compiled_gradients, draws_inside
from fluidjax.gradcheck.double import in_double, to_double
from fluidjax.gradcheck.eager import recorded
from fluidjax.gradcheck.inside import unvisited, visits
from fluidjax.gradcheck.local import Env, Subject
from fluidjax.gradcheck.program import append_gradients, first_of_backward, forward_copy, program_and_loss
from fluidjax.gradcheck.report import Beside, GradientMismatch, GradientReport, Row
from fluidjax.gradcheck.rows import enlarged
from fluidjax.gradcheck.whole import Whole
from lowering.engine.dataflow import sub_blocks
from lowering.engine.plan import make_plan
from lowering.engine.x64 import in_x64, with_x64
from lowering.program import OpView
from lowering.values import data_of

__all__ = ["check_grad"]


@in_x64
def check_grad(
    loss: Variable | VarBase | str | Program,
    feed: dict[str, Any] | None = None,
    *,
    parameter_list: Sequence[Any] | None = None,
    no_grad_set: Any = None,
    scope: Scope | None = None,
    rtol: float = 1e-6,
    float32_rtol: float = 1e-3,
    seed: int = 0,
    raises: bool = True,
) -> GradientReport:
    """Compare a program's Fluid gradients with ``jax.vjp``, with float64 finite differences, and among themselves.

    Each gradient op is checked individually, at the values it receives in this program and for a random output
    gradient, including those in loops and branches; then the whole backward pass, for every parameter and every
    floating-point feed. For a random direction u, the three numbers are <Fluid's gradient, u>, <jax's gradient, u> and
    (8 (f(x+eu) - f(x-eu)) - (f(x+2eu) - f(x-2eu))) / 12e, with e small enough to stay on one side of kinks. Variables
    that stop gradients, and inputs for which Fluid's gradient op computes none, are held constant in all three.

    Practical runs are then compared with these: each op in float32 with float64, each op on padded rows with
    unpadded ones, and the gradients of a compiled float32 run of an executor.

    If the program accepts any number of rows (or sequences), fewer than nine are repeated with slightly smaller values,
    since some faults only show after the first few. The loss may be computed from ``fluid.gradients``.

    The program and the scope are left unchanged: a copy is run, with a new backward pass.

    Args:
        loss: the loss variable (of shape [1]), its name in the default main program, or a program whose last
            forward output is the loss. For an eager loss, before its backward pass, the ops that gave it are checked
            for all variables that require gradients; ``feed`` and the arguments up to ``scope`` do not apply.
        feed: as for ``Executor.run``; float32 feeds are used as float64.
        parameter_list: parameters or names to check; all trainable ones by default.
        no_grad_set: as for ``append_backward``.
        scope: holds the values of the parameters; the global scope if None.
        rtol: maximum relative error.
        float32_rtol: maximum relative error in float32.
        seed: of the random directions.
        raises: raise GradientMismatch on disagreement; otherwise, see ``report.ok``.

    Returns:
        The report; print it to see tables. It is ``ok`` if everything was checked and agrees.

    Raises:
        GradientMismatch: names the first gradient op, in the order of the backward pass, that disagrees.
        ValueError: the loss is not a scalar of this program.
        UntrustedProgramError: the program was loaded and has host effects; see ``fluid.io.allow_host_ops``.
    """
    if isinstance(loss, VarBase):
        with tracer_guard(None):
            program, name, scope, parameters = recorded(loss)
            return check_grad(
                program.global_block().var(name),
                parameter_list=parameters,
                scope=scope,
                rtol=rtol,
                float32_rtol=float32_rtol,
                seed=seed,
                raises=raises,
            )
    program, name = program_and_loss(loss)
    check_trusted(program)
    limits = _Limits(rtol, float32_rtol)
    report = GradientReport()
    check = _Check(program, name, dict(feed or {}), scope or global_scope(), parameter_list, no_grad_set, limits, seed)
    check.each_op(report)
    after = check.each_input(report)
    check.executor(after, report)
    if raises and not report.agrees:
        raise GradientMismatch(_mismatch(report), report)
    return report


@dataclass(frozen=True)
class _Limits:
    double: float
    single: float


class _Check:
    """A single check, created and used with 64-bit types."""

    def __init__(
        self,
        program: Program,
        loss: str,
        feed: dict[str, Any],
        scope: Scope,
        parameters: Sequence[Any] | None,
        no_grad_set: Any,
        limits: _Limits,
        seed: int,
    ):
        self.scope, self.loss, self.limits = scope, loss, limits
        self.rng = np.random.default_rng(seed)
        self.key = jax.random.key(seed)
        self.copy = forward_copy(program, loss)
        fed = [n for n, v in feed.items() if local.floating(np.asarray(v))]
        listed = None if parameters is None else list(parameters)
        self.parameters, self.feeds = append_gradients(self.copy, loss, listed, fed, no_grad_set)
        self.single = program_view(self.copy)
        self.program = in_double(self.single)
        begin = first_of_backward(self.copy)
        ops = [op for op in self.program.blocks[0].ops if not local.skipped(op)]
        self.forward = [op for op in ops if op.index < begin]
        self.backward = [op for op in ops if op.index >= begin]
        self.whole = Whole(self.program, loss, self.forward, self.key)
        self.feed, self.env, self.steps = self._started(feed)

    def _started(self, feed: dict[str, Any]) -> tuple[dict[str, Any], Env, list[Env]]:
        """The feed with enough rows, if the program takes more; its values; and the values before and after each op."""
        more = enlarged(feed, self.copy)
        if more is not None:
            try:
                env = self._values(more)
                return more, env, self._walked(env)
            except Exception:  # noqa: BLE001 - whatever a program that is made for so many rows says to others
                pass
        env = self._values(feed)
        return feed, env, self._walked(env)

    def _values(self, feed: dict[str, Any]) -> Env:
        """Feeds and state in double precision."""
        plan = make_plan(self.program, [self.loss])
        feeder = Feeder(self.program.blocks[0].vars, plan.ranks)
        env = gather_values(self.scope, [n for n in plan.reads if n not in feed], exact=True)
        doubles = {name: _double_feed(value) for name, value in feed.items()}
        env.update(zip(doubles, feeder.values(tuple(doubles), doubles, exact=True), strict=True))
        return {name: to_double(value) for name, value in env.items()}

    def _walked(self, env: Env) -> list[Env]:
        steps = [dict(env)]
        for op in self.forward:
            steps.append(local.run_ops(self.program, [op], steps[-1], self.key))
        return steps

    def _subject(self, op: OpView) -> Subject:
        maker = forward_of(self.copy.global_block().ops[op.index])
        if maker is None:
            return Subject(self.program, op)
        index = next(i for i, other in enumerate(self.copy.global_block().ops) if other is maker)
        return Subject(self.program, op, self.program.blocks[0].ops[index])

    def each_op(self, report: GradientReport) -> None:
        """Check each op individually, in the order of the backward pass."""
        covered = self.whole.covered([*self.parameters, *self.feeds])
        for place, op in reversed(list(enumerate(self.forward))):
            subject, env = self._subject(op), self.steps[place]
            self.whole.note(subject, env, self.steps[place + 1])
            if sub_blocks(op):
                self._inside(op, env, op.index in covered, report)
            elif not self._by_itself(subject, env, f"{op.type} (#{op.index})", report):
                if op.index in covered and lowering.get_op(op.type).differentiable:
                    report.whole.append(op.type)

    def _inside(self, op: OpView, env: Env, covered: bool, report: GradientReport) -> None:
        """Check the ops in the blocks of ``op``; its own gradient is a block, which the whole backward pass checks."""
        found = visits(self.program, op, env, self.key)
        for (block, index), met in reversed(found.items()):
            for subject, values in ((Subject(self.program, inner), values) for inner, values in met):
                if not sub_blocks(subject.op):
                    self._by_itself(subject, values, f"{subject.op.type} (#{index} of block {block})", report)
        if covered:
            report.whole.append(op.type)
        else:
            report.unchecked.append(f"{op.type}: no parameter and no fed value has a gradient through it")
        for inner in unvisited(self.program, op, found):
            if not local.skipped(inner):
                report.unchecked.append(f"{inner.type} of block {inner.block_idx}: it did not run")

    def _by_itself(self, subject: Subject, env: Env, what: str, report: GradientReport) -> bool:
        """Check a single op; returns whether there was anything to check."""
        probe = local.check_op(subject, env, self.rng, self.key, self.limits.double)
        if probe is None:
            return False
        report.ops.append(self._row(what, probe))
        float32 = beside.float32_error(subject, self.single, env, self.rng, self.key, self.limits.single)
        padded = beside.padding_error(subject, env, self.rng, self.key)
        faults = [] if report.ops[-1].ok else [""]
        for table, error, limit, where in (
            (report.float32, float32, self.limits.single, " in float32"),
            (report.padded, padded, self.limits.double, " over padded rows"),
        ):
            if error is not None:
                table.append(Beside(what, error, error <= limit))
                faults += [] if error <= limit else [where]
        if faults and report.first_bad_op is None:
            report.first_bad_op = _describe(subject.op, faults[0])
        return True

    def each_input(self, report: GradientReport) -> Env:
        """Check the whole backward pass for every parameter and feed; returns the values after it."""
        after = local.run_ops(self.program, self.backward, self.steps[-1], self.key)
        wanted: dict[str, str | None] = {**self.parameters, **self.feeds}
        wanted = {n: g for n, g in wanted.items() if local.floating(self.env.get(n))}
        gradients = self.whole.autodiff(self.env, list(wanted))
        least = self._least()
        for name, gradient in wanted.items():
            direction = self.rng.standard_normal(np.shape(data_of(self.env[name])))
            found = None if gradient is None else after.get(gradient)
            fluid = local.inner(found, direction)
            autodiff = None if gradients is None else local.inner(gradients[name], direction)
            size = 0.0 if found is None else float(np.linalg.norm(local.dense(found).ravel()))
            scale = max(least, size, abs(fluid))
            close = self.limits.double * scale
            difference = self.whole.difference(self.env, name, direction, fluid, close)
            table = report.parameters if name in self.parameters else report.feeds
            table.append(self._row(name, local.Probe(fluid, autodiff, difference, scale)))
        return after

    def _least(self) -> float:
        """The gradient that errors are relative to at least: differences tell nothing of smaller ones.

        A bias before batch normalisation has the gradient 0, and a loss of 1 whose last digit differs has slopes of
        2^-52 / step.
        """
        loss = abs(float(np.asarray(data_of(self.steps[-1][self.loss])).reshape(())))
        return local.resolved(max(1.0, loss)) / self.limits.double

    def executor(self, after: Env, report: GradientReport) -> None:
        """Compare the gradients of a compiled float32 run with those in float64."""
        random = draws_inside(self.copy)
        if random:
            report.unchecked.append(f"the compiled run: {', '.join(random)} in a loop or branch draws other numbers")
            return
        pairs = {n: g for n, g in {**self.parameters, **self.feeds}.items() if g is not None and g in after}
        if not pairs:
            return
        names = list(dict.fromkeys(pairs.values()))
        found = compiled_gradients(self.copy, self.feed, self.scope, names, after)
        for name, gradient in pairs.items():
            error = with_x64(beside.relative, found[gradient], local.dense(after[gradient]))
            report.compiled.append(Beside(name, error, error <= self.limits.single))

    def _row(self, what: str, probe: local.Probe) -> Row:
        error = probe.error
        return Row(what, probe.fluid, probe.autodiff, probe.difference, error, error <= self.limits.double)


def _double_feed(value: Any) -> Any:
    if isinstance(value, LoDTensor):
        copy = LoDTensor()
        copy._set_value(to_double(np.array(value)), value.lod())
        return copy
    return to_double(np.asarray(value))


def _describe(op: OpView, where: str) -> str:
    line = op.user_line().strip()
    built = f", built at: {line}" if line else ""
    place = f"#{op.index}" + (f" of block {op.block_idx}" if op.block_idx else "")
    return f"{op.type}_grad{where}, the gradient of op {op.type} ({place}, outputs {op.output_names()}{built})"


def _mismatch(report: GradientReport) -> str:
    whole = [row.what for row in [*report.parameters, *report.feeds] if not row.ok]
    if report.first_bad_op is not None:
        what = f"the first gradient op that disagrees is {report.first_bad_op}"
        advice = "correct its gradient rule (or, in float32 or over padded rows, the op's own)"
    elif whole:
        what = f"every gradient op is right by itself, but the whole gradient is not for: {', '.join(whole)}"
        advice = "look at how the program joins gradients (sums, no_grad_set, stop_gradient, in-place writes)"
    else:
        what = "the compiled run differs for: " + ", ".join(row.what for row in report.compiled if not row.ok)
        advice = "look for an op that float32 cannot carry here, or that misplaces the padding of a ragged batch"
    return (
        f"gradients disagree: {what}.\n  expected: equal numbers in every row; received:\n{report}\n  to do: {advice}"
    )
