"""Fused dense ops: fc, fusion_repeated_fc_relu, fusion_squared_mat_sub, fused_elemwise_activation."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lowering.ops.math.elementwise import aligned
from lowering.ops.math.extrema import at_least
from lowering.registry import Wise, op

_FC_VENDOR = (
    "use_mkldnn @ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@ use_quantizer Scale_in Scale_weights Scale_out"
    " force_fp32_output"
)


def dense(x, w, bias, dims):
    """X flattened to a matrix after ``dims`` dimensions, times W, plus Bias."""
    out = x.reshape(-1, w.shape[0]) @ w
    out = out if bias is None else out + bias.reshape(-1)
    return out.reshape(*x.shape[:dims], w.shape[1])


@op(diff="", lod="input", vendor=_FC_VENDOR, rows=Wise("input"))
def fc(input, w, bias=None, *, in_num_col_dims: int = 1, activation_type: str = "", padding_weights: bool = False):
    """Out = act(Input W + Bias), act relu or none; with ``padding_weights``, W has 4 extra rows and columns."""
    w = w[:-4, :-4] if padding_weights else w
    out = dense(input, w, bias, in_num_col_dims)
    return at_least(out, 0) if activation_type == "relu" else out


@op(out="ReluOut*~ Out", diff="", lod={"Out": "x"}, rows=Wise("x"))
def fusion_repeated_fc_relu(x, w: list, bias: list):
    """Out = relu(... relu(X W0 + Bias0) W1 + Bias1 ...); ReluOut holds the intermediate values."""
    values = []
    for weight, offset in zip(w, bias, strict=True):
        x = at_least(dense(x, weight, offset, 1), 0)
        values.append(x)
    return values[:-1], values[-1]


@op(out="SquaredX~ SquaredY~ SquaredXY~ Out", diff="", lod=None)
def fusion_squared_mat_sub(x, y, *, scalar: float = 1.0):
    """Out = scalar ((X Y)^2 - X^2 Y^2), along with X^2, Y^2 and (X Y)^2."""
    product = jnp.square(x @ y)
    return jnp.square(x), jnp.square(y), product, scalar * (product - jnp.square(x) @ jnp.square(y))


_BINARY = {"elementwise_add": jnp.add, "elementwise_mul": jnp.multiply}
_UNARY = {
    "relu": lambda x, scale: at_least(x, 0),
    "tanh": lambda x, scale: jnp.tanh(x),
    "sigmoid": lambda x, scale: jax.nn.sigmoid(x),
    "scale": lambda x, scale: x * scale,
    "gelu": lambda x, scale: jax.nn.gelu(x, approximate=True),
}


def _composed(x, y, axis, scale, functors):
    """(Out, IntermediateOut): binary(X, unary(Y)) if the binary functor is named first, else unary(binary(X, Y))."""
    first, second = (name.removesuffix("_grad") for name in functors)
    if first in _BINARY:
        inner = _UNARY[second](y, scale)
        return _BINARY[first](*aligned(x, inner, axis)), inner
    inner = _BINARY[second](*aligned(x, y, axis))
    return _UNARY[first](inner, scale), inner


def _elementwise_and_activation(
    x, y, *, axis: int = -1, scale: float = 0.0, save_intermediate_out: bool = False, functor_list: list[str]
):
    """Out = binary(X, unary(Y)) or unary(binary(X, Y)), as ordered by ``functor_list``; IntermediateOut: the inner one.

    Binary: elementwise_add, elementwise_mul; unary: relu, tanh, sigmoid, scale, gelu.
    """
    return _composed(x, y, axis, scale, functor_list)


def _grad(x, y, out, d_out, intermediate_out=None, *, axis, scale, functor_list):
    _, pull = jax.vjp(lambda a, b: _composed(a, b, axis, scale, functor_list)[0], x, y)
    return pull(d_out)


def _grad_ops(g):
    spec = g.regular()
    saved = g.attrs.get("save_intermediate_out", False)
    spec.inputs["IntermediateOut"] = g.output("IntermediateOut") if saved else []
    spec.outputs["IntermediateOut@GRAD"] = g.output_grad("IntermediateOut") if saved else []
    spec.attrs["functor_list"] = [name + "_grad" for name in g.attrs["functor_list"]]
    return [spec]


def _fused(type):
    rule = op(type, out="Out IntermediateOut~", lod={"Out": "x", "IntermediateOut": "y"})(_elementwise_and_activation)
    rule.grad(_grad)
    rule.grad_maker(_grad_ops)
    return rule


fused_elemwise_activation = _fused("fused_elemwise_activation")
fused_elemwise_add_activation = _fused("fused_elemwise_add_activation")  # what passes of Paddle 2 write
