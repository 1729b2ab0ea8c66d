"""``fluidjax verify MODEL|SCRIPT``: a proof of gradients, three ways.

A script runs up to its first training step; that step's gradients are held against jax's and against finite
differences, with the script's own batch and parameters, and the script goes no further. Of a saved model, which has no
loss, the mean square of its outputs is differentiated at made-up inputs.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from fluidjax import layers
from fluidjax.base.enums import OpRole, VarType, is_floating
from fluidjax.command import models, run, samples
from fluidjax.command.terms import BadUse
from fluidjax.compiler import CompiledProgram
from fluidjax.eager.varbase import VarBase
from fluidjax.execution.shares import one_feed
from fluidjax.execution.waiting import waiting
from fluidjax.executor import Executor
from fluidjax.export.files import Model
from fluidjax.framework import Program, default_main_program, program_guard
from fluidjax.framework.names import OP_ROLE
from fluidjax.gradcheck import GradientReport, check_grad
from fluidjax.readers.generator import next_feed

NAME, HELP = "verify", "prove a model's or script's gradients, three ways"


class _Checked(BaseException):
    """Ends a script whose gradients have been checked; nothing in it may catch this."""

    def __init__(self, report: GradientReport):
        super().__init__()
        self.report = report


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL|SCRIPT", help="a model's folder, a program's file, or a Python script")
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENTS", help="what the script sees in sys.argv")
    parser.add_argument("--params", metavar="FILE", help="the name of the file that holds all parameters")
    samples.add(parser)


def main(options: argparse.Namespace) -> int:
    """Print the report; 1 where gradients disagree."""
    of_script = options.model.endswith(".py")
    report = _of_script(options.model, options.arguments) if of_script else _of_model(options)
    print(report)
    return 0 if report.agrees else 1


def _of_script(path: str, arguments: list[str]) -> GradientReport:
    with _watched():
        try:
            failed = run.run(path, arguments)
        except _Checked as done:
            return done.report
    raise BadUse(
        f"no gradients of {path!r} were checked",
        "a script that runs a program with a backward pass, or calls backward()",
        "one that ended with an error" if failed else "one that ended without a training step",
        "mend it" if failed else "name the script that trains, with the arguments that make it train",
    )


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    """The first training step of whoever trains inside is checked instead of run."""
    run_program, backward = Executor.run, VarBase.backward

    def checked_run(*arguments: Any, **named: Any) -> list[Any]:
        given = inspect.signature(run_program).bind(*arguments, **named).arguments
        program, feed = given.get("program"), given.get("feed")
        inner = program._program if isinstance(program, CompiledProgram) else program or default_main_program()
        loss = _loss(inner) if isinstance(inner, Program) else None
        if loss is not None:
            share = feed[0] if isinstance(feed, (list, tuple)) and feed else feed
            check(inner.global_block().var(loss), next_feed(inner, one_feed(share)), given.get("scope"))
        return run_program(*arguments, **named)

    def checked_backward(self: VarBase, *arguments: Any, **named: Any) -> None:
        check(self, None, None)

    def check(loss: Any, feed: dict[str, Any] | None, scope: Any) -> None:
        stop()  # the check runs programs of its own
        raise _Checked(_report(loss, feed, scope))

    def stop() -> None:
        Executor.run, VarBase.backward = run_program, backward  # type: ignore[method-assign]

    Executor.run, VarBase.backward = checked_run, checked_backward  # type: ignore[method-assign]
    try:
        yield
    finally:
        stop()


def _report(loss: Any, feed: dict[str, Any] | None, scope: Any, parameters: list[str] | None = None) -> GradientReport:
    with waiting("Checking gradients"):
        return check_grad(loss, feed, scope=scope, parameter_list=parameters, raises=False)


def _loss(program: Program) -> str | None:
    """The loss of a program that has a backward pass."""
    roles = [(op, int(op.attr(OP_ROLE)) if op.has_attr(OP_ROLE) else 0) for op in program.global_block().ops]
    if not any(role & OpRole.Backward for _, role in roles):
        return None
    losses = [op for op, role in roles if role & OpRole.Loss and not role & OpRole.Backward]
    return losses[-1].output_arg_names[0] if losses else None


def _of_model(options: argparse.Namespace) -> GradientReport:
    path = models.find(options.model, options.params)
    model = Model(path.folder, path.program, path.parameters)
    program = model.program.clone()
    block = program.global_block()
    outputs = [block.var(name) for name in model.fetches if is_floating(block.var(name).dtype)]
    if not outputs:
        raise BadUse(
            f"the outputs of {options.model!r} have no gradients",
            "an output of floats",
            "whole numbers",
            "take another",
        )
    with program_guard(program, Program()):
        squares = [layers.mean(layers.square(output)) for output in outputs]
        loss = layers.sums(squares) if len(squares) > 1 else squares[0]
    read = {name for op in block.ops for name in op.input_arg_names}
    tensors = [v for v in block.vars.values() if v.persistable and v.type == VarType.LOD_TENSOR]
    held = [v.name for v in tensors if v.name in read and is_floating(v.dtype)]
    feed = samples.feed(program, model.feeds, options.batch, dict(options.shape))
    return _report(loss, feed, model.scope, held)
