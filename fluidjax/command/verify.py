"""``fluidjax verify MODEL|SCRIPT``: verifies gradients in three ways.

A script runs up to its first training step and no further; the gradients of that step are compared with those of jax
and with finite differences, using the script's own batch and parameters. For a saved model, which has no loss, the mean
square of its outputs is differentiated, on random inputs.
"""

from __future__ import annotations

import argparse
from typing import Any

from fluidjax import layers
from fluidjax.base.enums import VarType, is_floating
from fluidjax.command import models, samples, steps
from fluidjax.command.terms import BadUse
from fluidjax.execution.executables.waiting import waiting
from fluidjax.export.files import Model
from fluidjax.framework import Program, program_guard
from fluidjax.gradcheck import GradientReport, check_grad

NAME, HELP = "verify", "verify a model's or script's gradients in three ways"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    steps.add(parser)
    parser.add_argument("--params", metavar="FILE", help="name of the combined parameter file")
    samples.add(parser)


def main(options: argparse.Namespace) -> int:
    """Print the report; returns 1 if gradients disagree."""
    report = _of_script(options.model, options.arguments) if steps.is_script(options.model) else _of_model(options)
    print(report)
    return 0 if report.agrees else 1


def _of_script(path: str, arguments: list[str]) -> GradientReport:
    def of_program(step: steps.Step) -> GradientReport:
        assert step.loss is not None
        return _report(step.program.global_block().var(step.loss), step.feed, step.scope)

    return steps.first_step(path, arguments, of_program, lambda loss: _report(loss, None, None))


def _report(loss: Any, feed: dict[str, Any] | None, scope: Any, parameters: list[str] | None = None) -> GradientReport:
    with waiting("Checking gradients"):
        return check_grad(loss, feed, scope=scope, parameter_list=parameters, raises=False)


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
