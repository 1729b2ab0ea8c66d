"""The cost of each op of a program as counted by XLA: floating-point operations, and bytes read and written."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from fluidjax.base.scope import Scope
from fluidjax.base.tables import page, text_table
from fluidjax.export.function import to_jax
from fluidjax.framework import Program
from lowering.engine.runner import Runner
from lowering.engine.x64 import with_x64
from lowering.program import OpView
from lowering.values import data_of

_HEAD = ("op", "output", "FLOP", "bytes")


@dataclass(frozen=True)
class Cost:
    """The cost of one op before XLA fuses it with others; NaN if XLA does not report it."""

    op: str
    output: str
    flops: float
    bytes: float

    def cells(self) -> tuple[str, ...]:
        """The cells of its table row."""
        return (self.op, self.output, *(f"{n:,.0f}" if math.isfinite(n) else "?" for n in (self.flops, self.bytes)))


class Costs(list[Cost]):
    """The costs in op order; printed, or displayed by a notebook, as a table."""

    def _rows(self) -> list[tuple[str, ...]]:
        total = Cost("all", "", math.fsum(c.flops for c in self), math.fsum(c.bytes for c in self))
        return [cost.cells() for cost in (*self, total)]

    def __str__(self) -> str:
        lines = [_HEAD, *self._rows()]
        widths = [max(len(line[at]) for line in lines) for at in range(len(_HEAD))]
        pads = (str.ljust, str.ljust, str.rjust, str.rjust)
        texts = ("  ".join(pads[at](cell, widths[at]) for at, cell in enumerate(line)) for line in lines)
        return "\n".join(text.rstrip() for text in texts)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return page(text_table(_HEAD, self._rows()))


def op_costs(
    program: Program, feed: Mapping[str, Any], fetch_list: Sequence[Any] = (), scope: Scope | None = None
) -> Costs:
    """The cost of each op of the outermost block, including the blocks it runs, for feeds of the given shapes.

    Nothing is run: ops are lowered individually and counted by XLA. A loop counts as a single iteration.

    Args:
        program: its parameters must be in the scope.
        feed: maps names to arrays.
        fetch_list: variables or names; if given, ops not needed for them are omitted.
        scope: the scope; the global scope if None.

    Raises ExportError for programs with host ops.
    """
    function, parameters = to_jax(program, list(feed), list(fetch_list), scope=scope)
    found = Costs()

    class Counting(Runner):
        """Lowers each op separately, too."""

        def run_op(self, op: OpView, env: MutableMapping[str, Any]) -> dict[str, Any]:
            if op.block_idx or self.inside:
                return super().run_op(op, env)
            other = Runner(self.program, key=self.key, platform=self.platform, capacities=self.capacities)
            lowered = jax.jit(lambda values: other.run_op(op, {**env, **values})).lower(_forms(op, env))
            results = super().run_op(op, env)
            found.append(_cost(op, lowered, results))
            return results

    counting = function.with_runner(Counting)
    key = jax.random.key(0)
    with_x64(jax.eval_shape, lambda held, fed: counting.step(held, fed, key), parameters, dict(feed))
    return found


def _forms(op: OpView, env: Mapping[str, Any]) -> dict[str, Any]:
    """The shapes of what an op reads, for a trace of its own."""
    read = {name: env[name] for name in op.input_names() if name in env}
    return jax.tree_util.tree_map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), read)


def _cost(op: OpView, lowered: Any, results: Mapping[str, Any]) -> Cost:
    analysis = lowered.cost_analysis() or {}
    first = data_of(next(iter(results.values()), None))
    output = f"{first.dtype}{list(first.shape)}" if hasattr(first, "shape") else ""
    counted = (float(analysis.get(name, 0.0)) for name in ("flops", "bytes accessed"))
    return Cost(f"{op.type} (#{op.number})", output, *counted)
