"""The whole backward pass compared with differences and ``jax.grad`` of the whole forward pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

import lowering
from fluidjax.gradcheck import local
from fluidjax.gradcheck.local import Env, Subject
from lowering.engine.dataflow import sub_blocks
from lowering.engine.runner import Runner
from lowering.errors import NeedsConcrete, NeedsExact
from lowering.program import OpView, ProgramView
from lowering.values import data_of, exact


@dataclass
class Whole:
    """A program's loss as a function of its inputs, with everything that gradients do not pass through held constant.

    Attributes:
        forward: the ops up to the loss; some may be gradient ops of an earlier pass.
        frozen: op -> its outputs that stop gradients, with their values at the point of the check.
        held: op -> its inputs for which its gradient op computes no gradient, with their values.
    """

    program: ProgramView
    loss: str
    forward: list[OpView]
    key: Any
    frozen: dict[int, Env] = field(default_factory=dict)
    held: dict[int, Env] = field(default_factory=dict)

    def note(self, subject: Subject, before: Env, after: Env) -> None:
        """Record the values of an op that gradients do not pass through."""
        op = subject.op
        self.frozen[op.index] = {n: after[n] for n in self.stopped(op) if n in after}
        passed = None if sub_blocks(op) else _passed(subject)
        names = [] if passed is None else [n for n in op.input_names() if n not in passed]
        self.held[op.index] = {n: before[n] for n in names if local.floating(before.get(n))}

    def stopped(self, op: OpView) -> list[str]:
        """The outputs of an op that gradients do not pass through.

        What a gradient op reads of its forward op's results is excluded, even if the variable stops gradients (the Mean
        of layer_norm): it is part of how the op computes.
        """
        variables = self.program.blocks[0].vars
        names = [n for n in op.output_names() if n in variables and variables[n].stop_gradient]
        return [n for n in names if n not in self.saved]

    @cached_property
    def saved(self) -> set[str]:
        """Results that gradient ops among the forward ops read from their own forward ops."""
        return {n for op in self.forward for n in _saved(op)}

    def loss_at(self, env: Env) -> float:
        """The loss that the forward ops compute from ``env``."""
        current = dict(env)
        for op in self.forward:
            held = self.held[op.index]
            after = local.run_ops(self.program, [op], {**current, **held}, self.key)
            after.update({n: current[n] for n in held if n in current and n not in op.output_names()})
            current = {**after, **self.frozen[op.index]}
        return float(np.asarray(data_of(current[self.loss])).reshape(()))

    def difference(self, env: Env, name: str, direction: np.ndarray, fluid: float, close: float) -> float:
        """The slope of the loss as ``name`` moves along ``direction``."""

        def objective(values: dict[str, Any]) -> float:
            return self.loss_at({**env, **values})

        return local.central(objective, {name: env[name]}, {name: direction}, fluid, close)

    def autodiff(self, env: Env, names: list[str]) -> dict[str, Any] | None:
        """The gradients by ``jax.grad`` of the whole program or, for its loops, of their steps as plain ops.

        None if neither is possible: a kernel with an inner loop, or a loop whose length depends on the parameters.
        """
        points = {n: jax.numpy.asarray(data_of(env[n])) for n in names}
        for stepwise in (False, True):
            try:
                return jax.grad(lambda p, stepwise=stepwise: self._objective(env, p, stepwise))(points)
            except (NeedsConcrete, NeedsExact):
                continue
            except ValueError as error:
                if "while_loop" not in str(error) and "Reverse-mode" not in str(error):
                    raise
        return None

    def _objective(self, env: Env, points: Env, stepwise: bool) -> Any:
        """The loss at ``env`` with ``points``, which may be tracers."""
        current: Any = {**env, **{n: local.like(env[n], v) for n, v in points.items()}}
        runner = Runner(self.program, key=self.key, interpret=stepwise)
        for op in self.forward:
            held = {n: current[n] for n in self.held[op.index] if n in current}
            current.update({n: jax.lax.stop_gradient(v) for n, v in held.items()})
            current = runner.run_ops([op], current)
            current.update({n: v for n, v in held.items() if n not in op.output_names()})
            if stepwise:
                current = {n: exact(v) for n, v in current.items()}
            current.update({n: jax.lax.stop_gradient(current[n]) for n in self.stopped(op) if n in current})
        return data_of(current[self.loss]).reshape(())

    def covered(self, names: list[str]) -> set[int]:
        """The ops between ``names`` and the loss, which the gradients with respect to ``names`` pass through."""
        reached, ahead = set(names), set()
        for op in self.forward:
            if not reached.isdisjoint(op.input_names()):
                ahead.add(op.index)
                reached.update(op.output_names())
        needed, found = {self.loss}, set()
        for op in reversed(self.forward):
            if not needed.isdisjoint(op.output_names()):
                needed.update(op.input_names())
                found.add(op.index)
        return ahead & found


def _passed(subject: Subject) -> set[str]:
    """The inputs reached by an op's gradient, including what a gradient op reads of its forward op's results."""
    op = subject.op
    if not lowering.get_op(op.type).differentiable:
        return set()
    _, wanted = subject.gradient()
    return {*wanted, *_saved(op)}


def _saved(op: OpView) -> list[str]:
    forward = lowering.get_op(op.type).forward
    if forward is None:
        return []
    return [n for s in forward.outputs if forward.input(s.name) is None for n in op.inputs.get(s.name) or ()]
