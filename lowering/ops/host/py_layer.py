"""PyLayers as ops: Python classes with forward and backward methods that share a context."""

from __future__ import annotations

from typing import Any

from lowering.engine.gradients.grad_maker import GradMaker
from lowering.engine.host import service
from lowering.program import OpSpec
from lowering.registry import op


@op(out="Out* Ctx?", kind="host", lod=None, absent="x")
def py_layer(x: list, *, forward_callable_id: int = 0, layer_name: str = "", ctx: Any):
    """Out = forward(context, X...) of a PyLayer registered with the front end under a number; Ctx is the context.

    ``layer_name`` is the name of the class where the program was written.
    """
    return service("py_layer")(forward_callable_id, x, ctx.op.outputs.get("Out", ()))


@py_layer.grad_maker
def _(g: GradMaker) -> list[OpSpec]:
    """py_layer_grad, with the same context."""
    inputs = {"X": g.input("X"), "Out": g.output("Out"), "Ctx": g.output("Ctx"), "Out@GRAD": g.output_grad("Out")}
    return [OpSpec("py_layer_grad", inputs, {"X@GRAD": g.input_grad("X", drop_empty=False)}, g.attrs)]


@op(
    out="X@GRAD*",
    slots={"d_out": "Out@GRAD"},
    kind="host",
    lod=None,
    absent="x out d_out",
)
def py_layer_grad(
    x: list, out: list, ctx_: Any, d_out: list, *, forward_callable_id: int = 0, layer_name: str = "", ctx: Any
):
    """X@GRAD = backward(context, Out@GRAD...); a missing Out@GRAD is zeros."""
    return service("py_layer_grad")(forward_callable_id, ctx_, x, out, d_out, ctx.op.outputs.get("X@GRAD", ()))
