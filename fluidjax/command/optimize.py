"""``fluidjax optimize MODEL OUT``: writes a saved model with fewer ops, in Paddle's format, after comparing the two.

is_test_pass                           sets is_test on every op that has it
dead_code_elimination_pass             removes ops that do not contribute to an output
identity_op_clean_pass                 removes scales by 1, assignments, dropout at test time, casts to the same type
constant_folding_pass                  replaces results that depend only on parameters by parameters
common_subexpression_elimination_pass  computes equal expressions once
conv_bn_fuse_pass                      folds batch normalisation into the convolution before it
fc_fuse_pass                           replaces products and sums, and relu, by fc
"""

from __future__ import annotations

import argparse
import os

import numpy as np

import fluidjax as fluid
from fluidjax.base.errors import explain
from fluidjax.command import models
from fluidjax.command.terms import table
from fluidjax.execution.executables.waiting import waiting
from fluidjax.export.c.build import difference
from fluidjax.export.c.convert import draw_feeds
from fluidjax.export.files import Model
from fluidjax.ir import PASSES, Optimized, optimize

NAME, HELP = "optimize", "write a model with fewer ops"
# What the outputs may differ by, relative to the largest element: folded filters round otherwise.
TOLERANCE = 1e-5


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help="a model directory, or its program file")
    parser.add_argument("out", metavar="OUT", help="the directory to write")
    parser.add_argument("--params", metavar="FILE", help="name of the combined parameter file")
    parser.add_argument("--passes", metavar="NAMES", help=f"comma-separated, in order (default: {', '.join(PASSES)})")
    parser.add_argument("--draw", metavar="FOLDER", help="also write before.dot and after.dot, for graphviz")


def main(options: argparse.Namespace) -> int:
    """Write the model, and report the effect of each pass."""
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
    """Compare the outputs of both models on random inputs. Raises ValueError if they differ."""
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
