"""hierarchical_sigmoid: a softmax as a path of binary decisions through a tree of classes."""

import jax.numpy as jnp
import numpy as np

from lowering.engine.checks import Demand
from lowering.errors import Misfit
from lowering.ops.nn.embedding import gather_rows
from lowering.ops.sparse import merge_rows
from lowering.registry import Wise, op
from lowering.values import Meta, SelectedRows

CLIP = 40.0
VENDOR = "remote_prefetch trainer_id height_sections epmap table_names"


def _complete_tree(label, num_classes):
    """(inner nodes, bits, whether the step exists), each [N, depth], of Fluid's complete binary tree.

    The code of class c is c + num_classes; step j visits node (code >> (j + 1)) - 1 and takes bit j.
    """
    depth = int(num_classes - 1).bit_length()
    code = label.reshape(-1, 1).astype(jnp.int64) + num_classes
    step = np.arange(depth, dtype=np.int64)
    parent = code >> (step + 1)
    return parent - 1, (code >> step) & 1, parent > 0


def paths(label, path_table, path_code, num_classes):
    """(nodes, bits, valid) of each row's path; a missing step repeats the first node, so that none is touched anew."""
    if path_table is None:
        nodes, bits, valid = _complete_tree(label, num_classes)
    else:
        nodes, bits = path_table, path_code
        valid = jnp.cumprod((path_table >= 0).astype(jnp.int32), axis=1).astype(bool)
    return jnp.where(valid, nodes, nodes[:, :1]), bits, valid


@op(out="Out PreOut~ W_Out~", slots={"w_out": "W_Out"}, diff="x w bias", lod={"Out": "x"}, undeclared="PreOut",
    rows=Wise("x label path_table path_code"), inplace={"W_Out": "w"}, vendor=VENDOR)  # fmt: skip
def hierarchical_sigmoid(
    x, w, label, path_table=None, path_code=None, bias=None, *, num_classes: int = 2, is_sparse: bool = False
):
    """Out [N, 1] = sum over the label's path of log(1 + exp(z)) - bit * z, z = clip(W[node] . X + Bias[node], +-40).

    PreOut [N, depth] keeps log(1 + exp(z)). Steps beyond the end of a path count as z = 0, so each adds log(2), as in
    Fluid. PathTable and PathCode [N, depth] define a custom tree, padded with -1. W_Out is not written.
    """
    nodes, bits, valid = paths(label, path_table, path_code, num_classes)
    if nodes.shape[0] != x.shape[0]:
        raise Misfit(f"Label must hold one class for each row of X, received {list(label.shape)} for {list(x.shape)}")
    z = jnp.einsum("nd,nkd->nk", x, gather_rows(w, nodes))
    z = z if bias is None else z + gather_rows(bias.reshape(-1), nodes)
    z = jnp.clip(jnp.where(valid, z, 0), -CLIP, CLIP)
    pre_out = jnp.log1p(jnp.exp(z))
    taken = jnp.where(valid, bits * z, 0)
    return (pre_out - taken).sum(axis=1, keepdims=True), pre_out, None


@hierarchical_sigmoid.check
def _(label, path_table: Meta = None, *, num_classes):
    return [Demand("label", label, 0, num_classes)] if path_table is None else []


@hierarchical_sigmoid.grad
def _(x, w, label, pre_out, d_out, path_table=None, path_code=None, bias: Meta = None, *, num_classes, is_sparse):
    """dz = (1 - exp(-PreOut) - bit) * dOut on the steps of the path; sparse rows are the nodes visited, each once."""
    nodes, bits, valid = paths(label, path_table, path_code, num_classes)
    dz = jnp.where(valid, 1 - jnp.exp(-pre_out) - bits, 0).astype(x.dtype) * d_out.reshape(-1, 1)
    dx = jnp.einsum("nk,nkd->nd", dz, gather_rows(w, nodes))
    rows = (dz[:, :, None] * x[:, None]).reshape(-1, w.shape[1])
    flat = nodes.reshape(-1).astype(jnp.int64)
    d_bias = None if bias is None else jnp.zeros(bias.shape, bias.dtype).at[flat].add(dz.reshape(-1, *bias.shape[1:]))
    if is_sparse:
        visited = jnp.where(valid.reshape(-1), flat, w.shape[0])
        return dx, merge_rows(SelectedRows(visited, rows, w.shape[0])), d_bias
    return dx, jnp.zeros_like(w).at[flat].add(rows), d_bias
