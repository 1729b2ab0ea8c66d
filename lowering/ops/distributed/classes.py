"""What losses over sampled classes are made of where servers hold the weights; Fluid's ops ask for the rows themselves.

See ``lowering.engine.remote`` for the programs that they replace an op by.
"""

from __future__ import annotations

import jax.numpy as jnp

from lowering.engine.checks import Demand
from lowering.ops.loss.hsigmoid import paths
from lowering.ops.loss.sampled import classes_of, cost_of, noise_of, scores_of, slope_of, table_grads
from lowering.registry import op
from lowering.values import Meta


@op(out="SampleLabels", lod=None)
def nce_classes(
    label,
    custom_dist_alias=None,
    custom_dist_alias_probs=None,
    *,
    num_total_classes: int,
    num_neg_samples: int = 10,
    sampler: int = 0,
    seed: int = 0,
    custom_neg_classes: list[int] = (),
    key,
):
    """SampleLabels [N, T + S] = each row's labels, then the classes that ``nce`` draws for it."""
    drawn = (num_total_classes, sampler, custom_dist_alias, custom_dist_alias_probs)
    return classes_of(key, label, num_neg_samples, custom_neg_classes, *drawn)


@nce_classes.check
def _(label, *, num_total_classes):
    return [Demand("label", label, 0, num_total_classes)]


@op(out="Cost SampleLogits~", diff="input weight bias", lod=None)
def nce_of_rows(
    input,
    label: Meta,
    weight: Meta,
    sample_labels,
    rows,
    bias=None,
    sample_weight=None,
    custom_dist_probs=None,
    *,
    num_total_classes: int,
    num_neg_samples: int = 10,
    sampler: int = 0,
    is_sparse: bool = False,
):
    """Cost and SampleLogits of ``nce`` for the classes SampleLabels [N, K], whose weights are Rows [N * K, D]."""
    o = scores_of(input, rows.reshape(*sample_labels.shape, -1), sample_labels, bias)
    noise = noise_of(sample_labels, num_total_classes, num_neg_samples, sampler, custom_dist_probs, o.dtype)
    return cost_of(o, noise, label, sample_weight), o


@nce_of_rows.grad
def _(
    input,
    label: Meta,
    weight: Meta,
    sample_labels,
    rows,
    sample_logits,
    d_cost,
    bias: Meta = None,
    sample_weight=None,
    custom_dist_probs=None,
    *,
    num_total_classes,
    num_neg_samples,
    sampler,
    is_sparse,
):
    """As for ``nce``, from the rows that the op was given."""
    probs = custom_dist_probs
    noise = noise_of(sample_labels, num_total_classes, num_neg_samples, sampler, probs, sample_logits.dtype)
    slope = slope_of(sample_logits, noise, label, sample_weight, d_cost)
    d_input = jnp.einsum("nk,nkd->nd", slope, rows.reshape(*sample_labels.shape, -1))
    return d_input, *table_grads(input, weight, bias, sample_labels, slope, is_sparse)


@op(out="Nodes", lod=None)
def tree_nodes(label, path_table=None, *, num_classes: int = 2):
    """Nodes [N, depth] of each label's path for ``hierarchical_sigmoid``; a missing step repeats the first node."""
    return paths(label, path_table, path_table, num_classes)[0].astype(jnp.int64)


@op(lod=None, inplace={"Out": "x"})
def rows_filled_in(x, ids, rows):
    """Out = X with Rows, one for each of Ids, in the places that these number."""
    return jnp.asarray(x).at[ids.reshape(-1)].set(rows, mode="drop")
