"""What a rule may query in addition to its slots and attributes."""

from __future__ import annotations

from typing import Any

from lowering.engine.run import Env, Run
from lowering.program import EMPTY, OpView, VarView
from lowering.registry import OpDef


class Context:
    """What a rule that takes ``ctx`` may know beyond its values.

    Plain rules use ``is_backward``, ``platform``, ``may_widen``, ``arity``, ``wants`` and ``out_var``; block rules also
    ``op``, ``env``, ``runner`` and ``run_block``.
    """

    def __init__(self, op: OpView, runner: Run, env: Env | None = None):
        self.op = op
        self.runner = runner
        self.env: Env = {} if env is None else env

    @property
    def is_backward(self) -> bool:
        """Whether the op computes gradients."""
        return self.op.computes_gradients

    @property
    def platform(self) -> str:
        """The platform that the step is compiled for: 'cpu', 'gpu' or 'tpu'."""
        return self.runner.platform

    @property
    def release(self) -> int:
        """The release of Paddle that wrote the program, as 2006002; 0 if unknown."""
        return self.runner.program.version

    @property
    def may_widen(self) -> bool:
        """Whether ``sequence_pad`` may allocate more room than the longest sequence takes (see ``widen``)."""
        return self.op.block_idx == 0 and self.op.index in self.runner.spare.widened

    def label(self, offsets: Any) -> Any:
        """The label of a dim as long as the longest sequence under these offsets; None if it has its true size."""
        labels = self.runner.labels
        return labels.of(offsets) if labels is not None and self.op.block_idx == 0 else None

    def arity(self, slot: str) -> int:
        """The number of variables bound to an output slot."""
        return len(self.op.outputs.get(slot) or ())

    def wants(self, slot: str) -> bool:
        """Whether any variable receives the output ``slot``."""
        return any(n != EMPTY for n in self.op.outputs.get(slot) or ())

    def out_var(self, slot: str, i: int = 0) -> VarView | None:
        """The declared variable bound to an output slot."""
        names = self.op.outputs.get(slot) or ()
        return self.runner.program.find_var(self.op.block_idx, names[i]) if i < len(names) else None

    def run_block(self, block_idx: int, env: Env) -> Env:
        """Run the ops of a sub-block over ``env``, which is changed in place and returned."""
        return self.runner.run_block(block_idx, env)


def in_place(definition: OpDef, op: OpView) -> frozenset[str]:
    """The output slots that ``op`` binds to the variable of the input they update."""
    pairs = definition.inplace.items()
    return frozenset(out for out, source in pairs if op.outputs.get(out) and op.outputs[out] == op.inputs.get(source))


def special(definition: OpDef, op: OpView, key: Any, ctx: Context, *, checked: bool = False) -> dict[str, Any]:
    """What a rule may query in addition to its slots and attributes.

    ``checked``: whether what the op demands of its values is known to be met.
    """
    return {"key": key, "ctx": ctx, "in_place": in_place(definition, op), "checked": checked}
