"""The passes of a predictor, under Fluid's names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fluidjax import passes
from fluidjax.base.errors import explain
from fluidjax.base.scope import Scope
from fluidjax.files import inference
from fluidjax.framework import Program
from fluidjax.ir import PASSES, optimize

# Fluid's name -> ours, where one of ours does it under another. A pass that Fluid has and that is neither here nor in
# PASSES does nothing: XLA fuses elementwise ops, LSTMs and GRUs compute the products of all steps at once, and there is
# no context to cache.
ALIASES = {
    "simplify_with_basic_ops_pass": "identity_op_clean_pass",
    "identity_scale_op_clean_pass": "identity_op_clean_pass",
    "conv_eltwiseadd_bn_fuse_pass": "conv_bn_fuse_pass",
}


def chosen(names: Iterable[str]) -> list[str]:
    """The entries of PASSES that the names stand for, in the order of PASSES. Raises ValueError for an unknown name."""
    given = list(names)
    if unknown := [name for name in given if name not in PASSES and name not in passes.KNOWN]:
        raise ValueError(
            explain(
                "AnalysisConfig.pass_builder: there is no such pass",
                f"those of Fluid 1.8.5, or {', '.join(PASSES)}",
                ", ".join(unknown),
                "delete_pass(name) takes it out",
            )
        )
    wanted = {ALIASES.get(name, name) for name in given}
    return [name for name in PASSES if name in wanted]


def optimized(
    program: Program, feeds: Sequence[str], fetches: Sequence[str], scope: Scope, names: Iterable[str]
) -> tuple[Program, Scope]:
    """Apply passes to copies of a model's program and scope, preserving its feed and fetch ops.

    The model stays as it is where an input would be left that nothing reads: it has to be fed as before.
    """
    found = optimize(program, feeds, fetches, scope, chosen(names))
    read = {name for block in found.program.blocks for op in block.ops for name in op.input_arg_names}
    if not read.issuperset(feeds):
        return program, scope
    return inference.with_feeds_and_fetches(found.program, feeds, fetches), found.scope
