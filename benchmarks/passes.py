"""``python -m benchmarks.passes [pass ...]``: what each pass gains on a recorded network in which it finds something.

A pass runs alone. Given are its matches, the ops before and after, and the CPU time of a step on one thread before and
after: of our Executor, for which XLA does much of this anyway, and of Paddle 1.8.5, which runs op by op, where
``FLUIDJAX_PADDLE_PYTHON`` names a Python that has it. Before and after are measured in turn, and the best of each
counts. The table is for docs/guide/passes.md.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import fluidjax as fluid
from benchmarks.c import peer, write_program
from fluidjax.ir import optimize
from tests.golden.c import job_of
from tests.golden.session import Session
from tests.golden.zoocase import zoo_case

# Where a pass finds most, for its cost. ``is_test_pass`` is not here: it makes a training program one for tests.
NETWORKS = {
    "dead_code_elimination_pass": "misc_tensor_ops",
    "identity_op_clean_pass": "nlp_ernie_base",
    "constant_folding_pass": "nlp_xlnet_last",
    "common_subexpression_elimination_pass": "nlp_simnet_bow_pairwise",
    "conv_bn_fuse_pass": "cv_resnet18",
    "fc_fuse_pass": "nlp_ernie_base",
}
ROUNDS = 3


def written(pass_name: str, before: Path, after: Path) -> tuple[int, int, int]:
    """The network as it is and as the pass leaves it, in two folders: (matches, ops before, ops after)."""
    case = zoo_case(NETWORKS[pass_name])
    job = job_of(case, "forward")
    assert job is not None
    raw, fetches, feeds = job
    session = Session()
    session.set(case.initial_values())
    program = fluid.Program.parse_from_string(raw).clone(for_test=True)
    feeds = {name: value for name, value in feeds.items() if program.global_block().has_var(name)}
    found = optimize(program, list(feeds), fetches, session.scope, [pass_name])
    for folder, made, scope in ((before, program, session.scope), (after, found.program, found.scope)):
        folder.mkdir()
        held = {name: np.array(scope.find_var(name).get_tensor()) for name in parameters(made, scope)}
        given = {name: value for name, value in feeds.items() if made.global_block().has_var(name)}
        write_program(folder, made.desc.serialize_to_string(), fetches, given, held)
    (step,) = found.steps
    return step.found, step.before, step.after


def parameters(program: fluid.Program, scope: fluid.Scope) -> list[str]:
    """What a program keeps, as far as the scope has it."""
    kept = [var.name for var in program.list_vars() if var.persistable]
    held = {name: scope.find_var(name) for name in kept}
    return [name for name, var in held.items() if var is not None and var.get_tensor()._is_initialized()]


def timed(python: str, module: str, before: Path, after: Path) -> str:
    """The best times of a step before and after, in microseconds."""
    best = [np.inf, np.inf]
    for _ in range(ROUNDS):
        for i, folder in enumerate((before, after)):
            measured = peer(python, module, folder)
            assert measured is not None, f"{module} did not run {folder}"
            best[i] = min(best[i], measured[0])
    return f"{best[0]:,.0f} -> {best[1]:,.0f} ({best[1] / best[0]:.2f})"


def row(pass_name: str) -> str:
    """One line of the table."""
    with tempfile.TemporaryDirectory() as where:
        before, after = Path(where, "before"), Path(where, "after")
        found, ops, left = written(pass_name, before, after)
        paddle = os.environ.get("FLUIDJAX_PADDLE_PYTHON")
        times = [timed(sys.executable, "fluidjax", before, after)]
        times += [timed(paddle, "paddle.fluid", before, after) if paddle else ""]
    return f"| `{pass_name}` | {NETWORKS[pass_name]} | {found} | {ops} -> {left} | {' | '.join(times)} |"


def main() -> None:
    """Print the table."""
    print("| pass | network | found | ops | us a step: Executor | Paddle 1.8.5 |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in sys.argv[1:] or NETWORKS:
        print(row(name), flush=True)


if __name__ == "__main__":
    main()
