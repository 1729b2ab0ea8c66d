"""``fluidjax optimize MODEL OUT``: a saved model with fewer ops, in Paddle's own format, compared before it is written.

is_test_pass                           is_test set wherever an op has it
dead_code_elimination_pass             without the ops that lead to no output
identity_op_clean_pass                 without scales by 1, assignments, dropout in tests, casts to the same type
constant_folding_pass                  what follows from parameters alone, as parameters
common_subexpression_elimination_pass  what is computed twice, once
conv_bn_fuse_pass                      batch normalisation within the convolution before it
fc_fuse_pass                           products and sums, and relu, as fc
"""

from __future__ import annotations

import argparse
import os

import numpy as np

import fluidjax as fluid
from fluidjax.base.errors import explain
from fluidjax.command import models
from fluidjax.command.terms import table
from fluidjax.execution.waiting import waiting
from fluidjax.export.c.build import difference
from fluidjax.export.c.convert import draw_feeds
from fluidjax.export.files import Model
from fluidjax.ir import PASSES, Optimized, optimize

NAME, HELP = "optimize", "write a model with fewer ops"
# What the outputs may differ by, relative to the largest element: folded filters round otherwise.
TOLERANCE = 1e-5


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help="a model's folder, or its program's file")
    parser.add_argument("out", metavar="OUT", help="the folder to write")
    parser.add_argument("--params", metavar="FILE", help="the name of the file that holds all parameters")
    parser.add_argument("--passes", metavar="NAMES", help=f"with commas, in order (default: {', '.join(PASSES)})")
    parser.add_argument("--draw", metavar="FOLDER", help="also write before.dot and after.dot, for graphviz")


def main(options: argparse.Namespace) -> int:
    """Write the model, and say what each pass did."""
    path = models.find(options.model, options.params)
    model = Model(path.folder, path.program, path.parameters)
    passes = None if options.passes is None else options.passes.split(",")
    with waiting("Optimizing and comparing"):
        found = optimize(model.program, model.feeds, model.fetches, model.scope, passes)
        _compare(model, found)
    rows = [(step.name, f"found {step.found}", f"{step.before} -> {step.after} ops") for step in found.steps]
    if options.draw:
        os.makedirs(options.draw, exist_ok=True)
        for name, program in (("before", model.program), ("after", found.program)):
            where = os.path.join(options.draw, f"{name}.dot")
            fluid.debugger.draw_block_graphviz(program.global_block(), path=where)
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(found.scope):
        targets = [found.program.global_block().var(name) for name in model.fetches]
        fluid.io.save_inference_model(
            options.out, model.feeds, targets, executor, found.program, None, path.parameters, program_only=False
        )
    print(table(rows))
    return 0


def _compare(model: Model, found: Optimized) -> None:
    """The outputs of both for drawn inputs. ValueError where they differ."""
    drawn = draw_feeds(model.program, model.feeds, 2, None)
    feed = {name: value.tensor() for name, value in drawn.items()}
    executor = fluid.Executor(fluid.CPUPlace())
    before, after = (
        executor.run(program, feed=feed, fetch_list=model.fetches, scope=scope, return_numpy=False)
        for program, scope in ((model.program, model.scope), (found.program, found.scope))
    )
    for name, a, b in zip(model.fetches, before, after, strict=True):
        apart = difference(np.array(b), np.array(a))
        if not apart <= TOLERANCE or a.lod() != b.lod():
            raise ValueError(
                explain(
                    f"the passes change the output {name!r}",
                    f"a relative difference of at most {TOLERANCE:.0e}",
                    f"{apart:.1e}",
                    "report this; --passes runs some of them",
                )
            )
