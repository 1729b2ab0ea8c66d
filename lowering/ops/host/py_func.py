"""Python functions as ops."""

from __future__ import annotations

from typing import Any

from lowering.engine.gradients.grad_maker import GradMaker
from lowering.engine.host import service
from lowering.program import OpSpec
from lowering.registry import op


@op(out="Out*", kind="host", lod=None, absent="x")
def py_func(
    x: list,
    *,
    forward_callable_id: int = 0,
    backward_callable_id: int = -1,
    backward_skip_vars: list[str] = [],  # noqa: B006
    ctx: Any,
):
    """Out = f(X...), where f is a Python function registered with the front end under a number; runs on the host.

    An input without a value (the gradient of an unused output) is passed as None.
    """
    return service("py_func")(forward_callable_id, x, ctx.op.outputs.get("Out", ()))


@py_func.grad_maker
def _(g: GradMaker) -> list[OpSpec]:
    """Another py_func of X, Out and Out@GRAD, except those to be skipped; none without a backward function."""
    backward = int(g.attrs.get("backward_callable_id", -1))
    if backward < 0:
        return []
    skipped = set(g.attrs.get("backward_skip_vars") or ())
    reads = [name for name in [*g.input("X"), *g.output("Out")] if name not in skipped]
    attrs = {"forward_callable_id": backward, "backward_callable_id": -1}
    outputs = {"Out": g.input_grad("X", drop_empty=False)}
    return [OpSpec("py_func", {"X": [*reads, *g.output_grad("Out")]}, outputs, attrs)]
