"""What oneDNN's kernels compute with an op after it, in models that Paddle's passes wrote for them.

``SaveOptimModel`` after ``enable_mkldnn`` leaves a convolution's bias, a sum and an activation to the convolution, and
a relu to batch normalisation; kernels that are not oneDNN's (``use_mkldnn`` is false) ignore these.
"""

import jax
import jax.numpy as jnp

from lowering.ops.math.extrema import at_least, at_most
from lowering.registry.vendor import ACTIVATIONS


def activation_of(fuse_activation, alpha, fuse_relu, fuse_brelu=False, threshold=6.0):
    """(activation, alpha); before Fluid 1.7, relu and a bounded relu had attributes of their own."""
    if fuse_activation:
        return fuse_activation, alpha
    return ("relu6", threshold) if fuse_brelu else ("relu" if fuse_relu else "", 0.0)


def finished(out, bias, residual, data_format, activation, alpha):
    """act(out + bias + residual): bias [channels] or None, residual of out's shape or None; act: see ``activated``."""
    if bias is not None:
        last = data_format in ("NHWC", "NDHWC")
        out = out + bias.reshape(-1, *[1] * (0 if last else out.ndim - 2)).astype(out.dtype)
    if residual is not None:
        if residual.shape != out.shape:
            raise ValueError(
                f"ResidualData {list(residual.shape)} is added to Output {list(out.shape)}; make the shapes equal"
            )
        out = out + residual
    return activated(out, activation, alpha)


def activated(x, activation, alpha):
    """relu, of slope alpha below 0 (0 but for leaky_relu); relu6: at most alpha; swish: x / (1 + exp(-alpha x))."""
    if activation in ("relu", "leaky_relu"):
        return at_least(x, 0) if alpha == 0 else jnp.where(x > 0, x, alpha * x)
    if activation == "relu6":
        return at_most(at_least(x, 0), alpha)
    if activation == "swish":
        return x * jax.nn.sigmoid(alpha * x)
    if activation:
        raise ValueError(f"fuse_activation is {activation!r}; expected one of {', '.join(ACTIVATIONS)}; save without")
    return x
