"""``check_grad``: a program's gradients, three ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fluidjax.backward import append_backward
from fluidjax.execution.feed import Feeder
from fluidjax.execution.state import gather_values
from fluidjax.files.trust import check as check_trusted
from fluidjax.framework import Program, Variable, default_main_program, program_view
from fluidjax.gradcheck import local
from fluidjax.gradcheck.double import in_double, to_double
from fluidjax.gradcheck.report import GradientMismatch, GradientReport, Row
from fluidjax.scope import Scope, global_scope
from lowering.block import Runner
from lowering.errors import NeedsConcrete, NeedsExact
from lowering.plan import make_plan, sub_blocks
from lowering.program import GRAD, OpView, ProgramView
from lowering.values import data_of, exact

__all__ = ["check_grad"]


def check_grad(
    loss: Variable | str | Program,
    feed: dict[str, Any] | None = None,
    *,
    parameter_list: Sequence[Any] | None = None,
    no_grad_set: Any = None,
    scope: Scope | None = None,
    rtol: float = 1e-6,
    seed: int = 0,
    raises: bool = True,
) -> GradientReport:
    """Hold a program's Fluid gradients against ``jax.vjp`` and finite differences, all in float64.

    Each gradient op is checked by itself, at the values it meets in this program and for a random output gradient;
    then the whole backward pass, parameter by parameter (loops and branches only there; ``jax.grad`` takes loops
    step by step). With u a random direction the three numbers are <Fluid's gradient, u>, <jax's gradient, u> and
    (8 (f(x+eu) - f(x-eu)) - (f(x+2eu) - f(x-2eu))) / 12e, e small enough to stay on one side of kinks. Variables that
    stop gradients are held constant in all three.

    The program and the scope are left as they are: a copy is run, its backward pass appended anew.

    Args:
        loss: the loss variable (of shape [1]), its name in the default main program, or a program whose last
            forward output is the loss.
        feed: as for ``Executor.run``; float32 feeds are used as float64.
        parameter_list: parameters or names to check; default all trainable ones.
        no_grad_set: as for ``append_backward``.
        scope: where the parameters' values are; default the global scope.
        rtol: largest relative error that passes.
        seed: of the random directions.
        raises: raise GradientMismatch when something disagrees; otherwise look at ``report.ok``.

    Returns:
        The report; print it for a table.

    Raises:
        GradientMismatch: naming the first gradient op, in the order of the backward pass, that disagrees.
        ValueError: the loss is not a scalar of this program.
        UntrustedProgramError: the program was loaded and acts on the host; see ``fluid.io.allow_host_ops``.
    """
    program, loss_name = _program_and_loss(loss)
    check_trusted(program)
    copy = _forward_copy(program)
    backward, pairs = _with_backward(copy, loss_name, parameter_list, no_grad_set)
    check = _Check(backward, loss_name, rtol, seed)
    with jax.enable_x64(True):
        env = check.values(feed or {}, scope or global_scope())
        report = GradientReport()
        check.each_op(env, report)
        check.each_parameter(env, pairs, report)
    if raises and not report.ok:
        raise GradientMismatch(_mismatch(report), report)
    return report


def _program_and_loss(loss: Variable | str | Program) -> tuple[Program, str]:
    if isinstance(loss, Variable):
        return loss.block.program, loss.name
    if isinstance(loss, Program):
        forward = [op for op in loss.global_block().ops if not _is_backward(op)]
        outputs = [n for op in forward[-1:] for n in op.output_arg_names]
        if not outputs:
            raise ValueError("check_grad: the program has no forward ops; pass the loss variable of one that has")
        return loss, outputs[0]
    return default_main_program(), str(loss)


def _is_backward(op: Any) -> bool:
    role = int(op.attr("op_role")) if op.has_attr("op_role") else 0
    return bool(role & 0x3)  # Backward or Optimize


def _forward_copy(program: Program) -> Program:
    """The program without its backward and optimizer ops, their variables and their blocks."""
    copy = program.clone()
    block = copy.global_block()
    for index in reversed(range(len(block.ops))):
        if _is_backward(block.ops[index]):
            block._remove_op(index)
    # Gradient blocks stand behind the blocks that they are the gradients of.
    while copy.blocks[-1].forward_block_idx >= 0:
        copy.blocks.pop()
        del copy.proto.blocks[-1]
    for block in copy.blocks:
        used = {n for op in block.ops for n in (*op.input_arg_names, *op.output_arg_names)}
        for name in [n for n in block.vars if GRAD in n and n not in used]:
            block._remove_var(name)
    copy._appending_grad_times = 0
    copy._descs_changed()
    return copy


def _with_backward(
    program: Program, loss_name: str, parameter_list: Any, no_grad_set: Any
) -> tuple[ProgramView, list[tuple[str, str]]]:
    """(view of the program with its backward pass, (parameter, gradient) names)."""
    if not program.global_block().has_var(loss_name):
        raise ValueError(
            f"check_grad: the loss {loss_name!r} is no variable of the program; pass the loss variable itself"
        )
    loss = program.global_block().var(loss_name)
    names = [p if isinstance(p, str) else p.name for p in parameter_list] if parameter_list is not None else None
    pairs = append_backward(loss, parameter_list=names, no_grad_set=no_grad_set)
    return in_double(program_view(program)), [(p.name, g.name) for p, g in pairs if g is not None]


class _Check:
    def __init__(self, program: ProgramView, loss: str, rtol: float, seed: int):
        self.program = program
        self.loss = loss
        self.rtol = rtol
        self.rng = np.random.default_rng(seed)
        self.key = jax.random.key(seed)
        self.frozen: dict[int, local.Env] = {}
        ops = [op for op in program.blocks[0].ops if not local.skipped(op)]
        self.forward = [op for op in ops if not op.is_backward]
        self.backward = [op for op in ops if op.is_backward]

    def values(self, feed: dict[str, Any], scope: Scope) -> local.Env:
        """Feeds and state, in double precision."""
        plan = make_plan(self.program, [self.loss])
        feeder = Feeder({n: v for n, v in self.program.blocks[0].vars.items()}, plan.ranks)
        env = gather_values(scope, [n for n in plan.reads if n not in feed], exact=True)
        for name, value in feed.items():
            env[name] = feeder.value(name, _double_feed(value), exact=True)
        return {name: to_double(value) for name, value in env.items()}

    def each_op(self, env: local.Env, report: GradientReport) -> None:
        """Check the ops one by one, in the order of the backward pass."""
        before: list[tuple[OpView, local.Env]] = []
        current = dict(env)
        for op in self.forward:
            before.append((op, current))
            current = local.run_ops(self.program, [op], current, self.key)
            self.frozen[op.index] = {n: current[n] for n in self._stopped(op) if n in current}
        for op, values in reversed(before):
            # The gradient of an op with a sub-block is a block of its own: the whole backward pass checks it.
            probe = None if sub_blocks(op) else local.check_op(self.program, op, values, self.rng, self.key, self.rtol)
            if probe is None:
                report.unchecked.append(op.type)
                continue
            row = self._row(f"{op.type} (#{op.index})", probe)
            report.ops.append(row)
            if not row.ok and report.first_bad_op is None:
                report.first_bad_op = _describe(op)

    def each_parameter(self, env: local.Env, pairs: list[tuple[str, str]], report: GradientReport) -> None:
        """Check the whole backward pass: gradients of the loss by every parameter."""
        after = local.run_ops(self.program, [*self.forward, *self.backward], env, self.key)
        gradients = self._autodiff(env, [p for p, _ in pairs])
        for parameter, gradient in pairs:
            direction = self.rng.standard_normal(np.shape(env[parameter]))
            fluid = local.inner(after.get(gradient), direction)
            autodiff = None if gradients is None else local.inner(gradients[parameter], direction)
            size = np.linalg.norm(local.dense(after[gradient]).ravel()) if gradient in after else 0.0
            scale = max(1e-8, float(size), abs(fluid))
            difference = self._difference(env, parameter, direction, fluid, scale)
            report.parameters.append(self._row(parameter, local.Probe(fluid, autodiff, difference, scale)))

    def _stopped(self, op: OpView) -> list[str]:
        """The outputs of an op that gradients do not pass."""
        variables = self.program.blocks[0].vars
        return [n for n in op.output_names() if n in variables and variables[n].stop_gradient]

    def _loss_at(self, env: local.Env) -> float:
        """The loss, where variables that stop gradients keep the values they have at the unperturbed point."""
        current = dict(env)
        for op in self.forward:
            current = local.run_ops(self.program, [op], current, self.key)
            current.update(self.frozen[op.index])
        return float(np.asarray(data_of(current[self.loss])).reshape(()))

    def _difference(self, env: local.Env, name: str, direction: np.ndarray, fluid: float, scale: float) -> float:
        def objective(values: dict[str, Any]) -> float:
            return self._loss_at({**env, **values})

        return local.central(objective, {name: env[name]}, {name: direction}, fluid, self.rtol * scale)

    def _autodiff(self, env: local.Env, names: list[str]) -> dict[str, Any] | None:
        """The gradients by ``jax.grad``: of the whole program, or of its loops step by step, which are plain ops then.

        None where neither can be had: a kernel that loops inside, or a loop whose length depends on the parameters.
        """
        parameters = {n: jax.numpy.asarray(env[n]) for n in names}
        for stepwise in (False, True):
            try:
                return jax.grad(lambda p, stepwise=stepwise: self._objective({**env, **p}, stepwise))(parameters)
            except (NeedsConcrete, NeedsExact):
                continue
            except ValueError as error:
                if "while_loop" not in str(error) and "Reverse-mode" not in str(error):
                    raise
        return None

    def _objective(self, env: local.Env, stepwise: bool) -> Any:
        """The loss at ``env``, which may hold tracers."""
        current: Any = dict(env)
        runner = Runner(self.program, key=self.key, interpret=stepwise)
        for op in self.forward:
            current = runner.run_ops([op], current)
            if stepwise:
                current = {n: exact(v) for n, v in current.items()}
            current.update({n: jax.lax.stop_gradient(current[n]) for n in self._stopped(op) if n in current})
        return data_of(current[self.loss]).reshape(())

    def _row(self, what: str, probe: local.Probe) -> Row:
        error = probe.error
        return Row(what, probe.fluid, probe.autodiff, probe.difference, error, error <= self.rtol)


def _double_feed(value: Any) -> Any:
    from fluidjax.values import LoDTensor

    if isinstance(value, LoDTensor):
        copy = LoDTensor()
        copy._set_value(to_double(np.array(value)), value.lod())
        return copy
    return to_double(np.asarray(value))


def _describe(op: OpView) -> str:
    line = op.user_line().strip()
    built = f", built at: {line}" if line else ""
    return f"{op.type}_grad, the gradient of op {op.type} (#{op.index}, outputs {op.output_names()}{built})"


def _mismatch(report: GradientReport) -> str:
    if report.first_bad_op is not None:
        what = f"the first gradient op that disagrees is {report.first_bad_op}"
        advice = "correct its gradient rule"
    else:
        bad = ", ".join(row.what for row in report.parameters if not row.ok)
        what = f"every gradient op is right by itself, but the whole gradient is not for: {bad}"
        advice = "look at how the program joins gradients (sums, no_grad_set, stop_gradient, in-place writes)"
    return (
        f"gradients disagree: {what}.\n  expected: three equal numbers per row; received:\n{report}\n  to do: {advice}"
    )
