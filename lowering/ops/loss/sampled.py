"""nce and sample_logits: losses over a sample of the classes.

The samplers are Fluid's three: uniform over all classes, log-uniform P(c) = log((c + 2) / (c + 1)) / log(n + 1), and
a custom distribution by the alias method. Samples come from JAX's generator, so they differ from Paddle's.
"""

import jax
import jax.numpy as jnp
import numpy as np

from lowering.engine.checks import Demand
from lowering.ops.nn.embedding import gather_rows
from lowering.registry import Wise, op
from lowering.values import Meta, SelectedRows

UNIFORM, LOG_UNIFORM, CUSTOM = 0, 1, 2
VENDOR = "remote_prefetch trainer_id height_sections epmap table_names"


def _log_uniform_sample(key, shape, classes):
    u = jax.random.uniform(key, shape, jnp.float32)
    value = jnp.exp(u * np.float32(np.log(classes + 1.0))).astype(jnp.int64) - 1
    return value % classes


def log_uniform_probability(c, classes, dtype):
    """P(c) of the log-uniform distribution over [0, classes)."""
    c = c.astype(dtype)
    return jnp.log((c + 2) / (c + 1)) / np.log(classes + 1.0).astype(dtype)


def _alias_sample(key, shape, classes, alias, alias_probs):
    pick_key, keep_key = jax.random.split(key)
    column = jax.random.randint(pick_key, shape, 0, classes, jnp.int64)
    keep = jax.random.uniform(keep_key, shape, jnp.float32) < jnp.asarray(alias_probs).reshape(-1)[column]
    return jnp.where(keep, column, jnp.asarray(alias).reshape(-1)[column].astype(jnp.int64))


def _draw(key, shape, classes, sampler, alias, alias_probs):
    if sampler == CUSTOM:
        return _alias_sample(key, shape, classes, alias, alias_probs)
    if sampler == LOG_UNIFORM:
        return _log_uniform_sample(key, shape, classes - 1)  # nce's sampler never draws the last class
    return jax.random.randint(key, shape, 0, classes, jnp.int64)


def _probability(labels, classes, sampler, probs, dtype):
    if sampler == CUSTOM:
        return jnp.asarray(probs).reshape(-1)[labels].astype(dtype)
    if sampler == LOG_UNIFORM:
        return log_uniform_probability(labels, classes - 1, dtype)
    return jnp.full(labels.shape, 1 / classes, dtype)


@op(
    out="Cost SampleLogits~ SampleLabels~",
    diff="input weight bias",
    lod=None,
    vendor=VENDOR,
    rows=Wise("input label sample_weight"),
)
def nce(
    input,
    label,
    weight,
    bias=None,
    sample_weight=None,
    custom_dist_probs=None,
    custom_dist_alias=None,
    custom_dist_alias_probs=None,
    *,
    num_total_classes: int,
    num_neg_samples: int = 10,
    sampler: int = 0,
    seed: int = 0,
    is_sparse: bool = False,
    custom_neg_classes: list[int] = (),
    key,
):
    """Noise-contrastive estimation. o = sigmoid(Input . Weight[c] + Bias[c]) for the labels and the drawn classes,
    b = num_neg_samples * P(c); Cost [N, 1] = SampleWeight * (sum over labels of -log(o / (o + b)) + sum over drawn
    ones of -log(b / (o + b))). SampleLogits holds o, SampleLabels the classes, labels first.
    """
    drawn = (num_total_classes, sampler, custom_dist_alias, custom_dist_alias_probs)
    classes = classes_of(key, label, num_neg_samples, custom_neg_classes, *drawn)
    o = _scores(input, weight, classes, bias)
    noise = noise_of(classes, num_total_classes, num_neg_samples, sampler, custom_dist_probs, o.dtype)
    return cost_of(o, noise, label, sample_weight), o, classes


@nce.redo(out="SampleLogits")
def _scores(input, weight, sample_labels, bias=None):
    return scores_of(input, gather_rows(weight, sample_labels), sample_labels, bias)


def classes_of(key, label, count, given, classes, sampler, alias, alias_probs):
    """The classes int64 [N, T + S] of each row: its T labels, then those ``given``, or ``count`` drawn."""
    n = label.shape[0]
    label = label.reshape(n, -1).astype(jnp.int64)
    if given:
        drawn = jnp.broadcast_to(jnp.asarray(given, jnp.int64), (n, len(given)))
    else:
        drawn = _draw(key, (n, count), classes, sampler, alias, alias_probs)
    return jnp.concatenate([label, drawn], axis=1)


def scores_of(input, rows, classes, bias):
    """o [N, K] = sigmoid(Input [N, D] . Rows [N, K, D] + Bias of the classes [N, K])."""
    logits = jnp.einsum("nd,nkd->nk", input, rows)
    return jax.nn.sigmoid(logits if bias is None else logits + gather_rows(bias.reshape(-1), classes))


def noise_of(labels, classes, count, sampler, probs, dtype):
    """b = count * P(c) of each of the labels."""
    return count * _probability(labels, classes, sampler, probs, dtype)


def cost_of(o, noise, label, sample_weight):
    """Cost [N, 1] of the scores and the noise of each row's classes, of which those of Label come first."""
    cost = -jnp.log(jnp.where(_is_label(o, label), o, noise) / (o + noise)).sum(axis=1, keepdims=True)
    return cost if sample_weight is None else cost * sample_weight.reshape(-1, 1)


def slope_of(o, noise, label, sample_weight, d_cost):
    """The gradient of the logits: b / (o + b) * (o - 1) for labels, o (1 - o) / (o + b) for drawn classes."""
    slope = jnp.where(_is_label(o, label), noise * (o - 1), o * (1 - o)) / (o + noise) * d_cost.reshape(-1, 1)
    return slope if sample_weight is None else slope * sample_weight.reshape(-1, 1)


def _is_label(o, label):
    return jnp.arange(o.shape[1]) < int(np.prod(label.shape[1:], dtype=int))


@nce.check
def _(label, *, num_total_classes):
    return [Demand("label", label, 0, num_total_classes)]


@nce.grad
def _(
    input,
    label: Meta,
    weight,
    sample_logits,
    sample_labels,
    d_cost,
    bias: Meta = None,
    sample_weight=None,
    custom_dist_probs=None,
    custom_dist_alias=None,
    custom_dist_alias_probs=None,
    *,
    num_total_classes,
    num_neg_samples,
    sampler,
    is_sparse,
):
    """From the saved sample; see ``slope_of``."""
    o, classes = sample_logits, sample_labels
    noise = noise_of(classes, num_total_classes, num_neg_samples, sampler, custom_dist_probs, o.dtype)
    slope = slope_of(o, noise, label, sample_weight, d_cost)
    d_input = jnp.einsum("nk,nkd->nd", slope, gather_rows(weight, classes))
    return d_input, *table_grads(input, weight, bias, classes, slope, is_sparse)


def table_grads(input, weight: Meta, bias: Meta | None, classes, slope, is_sparse):
    """(d Weight, SelectedRows if ``is_sparse``; d Bias) from the gradient of the logits of each row's classes."""
    d_rows = (slope[:, :, None] * input[:, None]).reshape(-1, weight.shape[1])
    flat = classes.reshape(-1)
    d_bias = None if bias is None else _table_grad(bias, flat, slope.reshape(-1, 1), False)
    return _table_grad(weight, flat, d_rows, is_sparse), d_bias


def _table_grad(table, rows, values, is_sparse):
    """The gradient of table[rows]: a SelectedRows, or added into zeros."""
    values = values.reshape(-1, *table.shape[1:])
    if is_sparse:
        return SelectedRows(rows, values, table.shape[0])
    return jnp.zeros(table.shape, table.dtype).at[rows].add(values, mode="drop")


def _unique_samples(key, count, classes):
    """(`count` different log-uniform classes int64 in the order drawn, the number of draws it took)."""

    def more(state):
        return state[1] < count

    def draw(state):
        taken, found, tries, samples = state
        c = _log_uniform_sample(jax.random.fold_in(key, tries), (), classes)
        samples = samples.at[found].set(jnp.where(taken[c], samples[found], c))
        found = found + jnp.where(taken[c], 0, 1).astype(found.dtype)
        return taken.at[c].set(True), found, tries + 1, samples

    start = (jnp.zeros(classes, bool), jnp.int32(0), jnp.int32(0), jnp.zeros(count, jnp.int64))
    _, _, tries, samples = jax.lax.while_loop(more, draw, start)
    return samples, tries


def _shared_samples(key, labels, classes, num_samples, dtype):
    """(Samples [N, T + S]: each row's labels, then classes drawn for all rows; the probability that the draws, whose
    number it took is known, hold each of them)."""
    if num_samples > classes:
        raise ValueError(
            f"num_samples is {num_samples} and there are {classes} classes; expected at most that many different "
            "samples; draw fewer"
        )
    drawn, tries = _unique_samples(key, num_samples, classes)
    drawn = jnp.broadcast_to(drawn, (labels.shape[0], num_samples))
    samples = jnp.concatenate([labels.astype(jnp.int64), drawn], axis=1)
    p = log_uniform_probability(samples, classes, dtype)
    return samples, -jnp.expm1(tries.astype(dtype) * jnp.log1p(-p))


OUTPUTS = "Samples~ Probabilities~ LogitsDim~ LabelsDim~ SampledLogits~ SampledLabels"


@op(out=OUTPUTS, diff="logits", lod=None, undeclared="LogitsDim:dtype LabelsDim:dtype")
def sample_logits(
    logits,
    labels,
    customized_samples=None,
    customized_probabilities=None,
    *,
    use_customized_samples: bool = False,
    uniq: bool = True,
    remove_accidental_hits: bool = True,
    num_samples: int,
    seed: int = 0,
    key,
):
    """SampledLogits [N, T + S] = Logits at the T labels and S drawn classes - log of their Probabilities.

    All rows share the drawn classes. With remove_accidental_hits, a drawn class that is a label of the row gets
    -1e20. SampledLabels [N, T] = 0 .. T - 1; LogitsDim and LabelsDim are [*shape, 0].
    """
    n, classes = logits.shape
    true = labels.shape[1]
    if use_customized_samples:
        samples, probabilities = customized_samples, customized_probabilities
    else:
        samples, probabilities = _shared_samples(key, labels, classes, num_samples, logits.dtype)
    picked = jnp.take_along_axis(logits, samples, axis=1)
    if remove_accidental_hits:
        hit = (samples[:, true:, None] == labels[:, None, :]).any(axis=2)
        hit = jnp.concatenate([jnp.zeros((n, true), bool), hit], axis=1)
        picked = jnp.where(hit, picked - 1e20, picked)
    log_p = jnp.log(probabilities)
    sampled = picked - jnp.clip(log_p, -1e20, 1e20)
    sampled_labels = jnp.broadcast_to(jnp.arange(true, dtype=jnp.int64), (n, true))
    return (
        samples,
        probabilities,
        np.zeros((*logits.shape, 0), np.int64),
        np.zeros((*labels.shape, 0), np.int64),
        sampled,
        sampled_labels,
    )


@sample_logits.check
def _(logits: Meta, labels):
    return [Demand("labels", labels, 0, logits.shape[1])]


@sample_logits.grad
def _(logits_dim: Meta, labels_dim: Meta, samples, d_sampled_logits):
    """Each sampled gradient added at its class of its row."""
    shape = logits_dim.shape[:-1]
    rows = jnp.arange(shape[0])[:, None]
    return jnp.zeros(shape, d_sampled_logits.dtype).at[rows, samples].add(d_sampled_logits, mode="drop")
