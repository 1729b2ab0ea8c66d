"""All passes in order, and the effect of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import Scope
from fluidjax.framework import Program
from fluidjax.ir import cleaning, folding, fusion
from fluidjax.ir.rewriter import Rewriter

# By Fluid's names where it has one, in the order in which they run.
PASSES: dict[str, Callable[[Rewriter], int]] = {
    "is_test_pass": cleaning.testing,
    "dead_code_elimination_pass": cleaning.dead_code,
    "identity_op_clean_pass": cleaning.identities,
    "constant_folding_pass": folding.constants,
    "common_subexpression_elimination_pass": cleaning.common,
    "conv_bn_fuse_pass": fusion.conv_bn,
    "fc_fuse_pass": fusion.fc,
}


@dataclass(frozen=True)
class Step:
    """The effect of a pass: the number of matches, and the numbers of ops before and after."""

    name: str
    found: int
    before: int
    after: int


@dataclass(frozen=True)
class Optimized:
    """A program that computes the same fetches, with its parameters and the effect of each pass."""

    program: Program
    scope: Scope
    steps: tuple[Step, ...]


def optimize(
    program: Program,
    feeds: Sequence[str],
    fetches: Sequence[str],
    scope: Scope,
    passes: Sequence[str] | None = None,
) -> Optimized:
    """Reduce the number of ops of an inference program. The given program and scope are left unchanged.

    Args:
        program, feeds, fetches: as returned by ``load_inference_model``; names.
        scope: holds the parameters.
        passes: a subset of ``PASSES``, run in this order; all by default.

    Raises ValueError for an unknown pass, and for fetches not computed by the program.
    """
    names = list(PASSES) if passes is None else list(passes)
    if unknown := [name for name in names if name not in PASSES]:
        raise ValueError(
            explain("there is no such pass", f"some of {', '.join(PASSES)}", ", ".join(unknown), "take some of these")
        )
    copied = Program.parse_from_string(program.desc.serialize_to_string())
    own = Scope()
    for var in program.global_block().vars.values():
        held = scope.find_var(var.name) if var.persistable else None
        if held is not None and held.get_tensor()._is_initialized():
            tensor = own.var(var.name).get_tensor()
            tensor.set(np.array(held.get_tensor()), CPUPlace())
            tensor.set_lod(held.get_tensor().lod())
    _drop_feeds(copied)
    rewriter = Rewriter(copied, own, feeds, fetches)
    steps = []
    for name in names:
        before = len(rewriter.ops)
        found = PASSES[name](rewriter)
        steps.append(Step(name, found, before, len(rewriter.ops)))
    cleaning.dead_code(rewriter)
    return Optimized(rewriter.program, own, tuple(steps))


def _drop_feeds(program: Program) -> None:
    block = program.global_block()
    for at in reversed(range(len(block.ops))):
        if block.ops[at].type == "feed":
            block._remove_op(at)
