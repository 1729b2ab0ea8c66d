"""accuracy, auc, mean_iou, precision_recall, positive_negative_pair: metrics, without gradients."""

import jax.numpy as jnp
from jax import lax

from lowering.engine.checks import Demand
from lowering.ops import fitting
from lowering.ragged import infer as sequence_infer
from lowering.registry import Masked, op
from lowering.values import LoDArray, row_mask


@sequence_infer.inferred
def _infer_accuracy(of):
    """One number each, of the data types that the layer declares; Accuracy has Out's LoD, as in Fluid."""
    return {"Accuracy": ((1,), of("Out").lod_level, None), "Correct": ((1,), 0, None), "Total": ((1,), 0, None)}


@op(out="Accuracy Correct Total", diff=(), lod=None, rows=Masked("indices label"), infer=_infer_accuracy)
def accuracy(out: LoDArray, indices, label):
    """Accuracy [1] float32 = fraction of rows whose Label is among the row's Indices; Correct, Total [1] int32.

    Accuracy carries Out's LoD although it has one row, as in Fluid: fetching it returns a LoDTensor.
    """
    hits = (indices == label.reshape(-1, 1)).any(axis=1)
    hits = hits & row_mask(out, 1)
    total = jnp.asarray(out.rows(), jnp.int32).reshape(1)
    correct = hits.sum(dtype=jnp.int32).reshape(1)
    share = correct.astype(jnp.float32) / jnp.maximum(total, 1).astype(jnp.float32)
    accuracy = LoDArray(share, out.lod, None, out.nseq, out.longest, out.tight)
    return accuracy if out.lod else accuracy.data, correct, total


@accuracy.fits
def _(label):
    fitting.rank("Label", label, 2)


@accuracy.check
def _(label):
    return [Demand("label", label)]


def _histogram(bins, counted, size, dtype):
    return jnp.zeros(size, dtype).at[bins].add(counted.astype(dtype), mode="drop")


def _area(positives, negatives):
    """Area under the ROC curve of two histograms, thresholds falling; 0 where a class is missing."""
    pos = jnp.cumsum(positives[::-1]).astype(jnp.float64)
    neg = jnp.cumsum(negatives[::-1]).astype(jnp.float64)
    before = lambda v: jnp.concatenate([jnp.zeros(1, v.dtype), v[:-1]])  # noqa: E731
    area = (jnp.abs(neg - before(neg)) * (pos + before(pos)) / 2).sum()
    product = pos[-1] * neg[-1]
    return jnp.where(product > 0, area / jnp.where(product > 0, product, 1), 0).reshape(1)


@op(out="AUC StatPosOut StatNegOut", diff=(), lod=None, rows=Masked("label"),
    inplace={"StatPosOut": "stat_pos", "StatNegOut": "stat_neg"})  # fmt: skip
def auc(
    predict: LoDArray,
    label,
    stat_pos,
    stat_neg,
    *,
    curve: str = "ROC",
    num_thresholds: int = 2**12 * 2 - 1,
    slide_steps: int = 1,
):
    """AUC [1] float64 from histograms of the last column of Predict over num_thresholds + 1 bins.

    slide_steps 0 accumulates over all batches. Otherwise the statistics hold that many batches, their sum and, in the
    last element, a count of batches; the newest batch replaces the oldest.
    """
    score = predict.data.reshape(predict.shape[0], -1)[:, -1]
    bins = (score * num_thresholds).astype(jnp.int32)
    valid = row_mask(predict, 1)
    positive = label.reshape(-1).astype(bool)
    size = num_thresholds + 1
    new_pos = _histogram(bins, positive & valid, size, stat_pos.dtype)
    new_neg = _histogram(bins, ~positive & valid, size, stat_neg.dtype)
    out_pos, sum_pos = _slide(stat_pos, new_pos, size, slide_steps)
    out_neg, sum_neg = _slide(stat_neg, new_neg, size, slide_steps)
    return _area(sum_pos, sum_neg), out_pos, out_neg


def _slide(stat, new, size, slide_steps):
    """(the statistics after the batch, the histogram to judge)."""
    flat = stat.reshape(-1)
    if slide_steps == 0:
        total = flat[:size] + new  # a layer's batch statistics come with one element more: a count that nothing needs
        return total.reshape(1, size), total
    window = flat[: slide_steps * size].reshape(slide_steps, size)
    total = flat[slide_steps * size : (slide_steps + 1) * size]
    at = flat[-1] % slide_steps
    total = total + new - window[at]
    out = jnp.concatenate([window.at[at].set(new).reshape(-1), total, flat[-1:] + 1])
    return out.reshape(stat.shape), total


@op(out="OutMeanIou OutWrong OutCorrect", diff=(), lod=None)
def mean_iou(
    predictions, labels, in_wrongs: list = None, in_corrects: list = None, in_mean_iou: list = None, *,
    num_classes: int,
):  # fmt: skip
    """OutMeanIou [1] = mean over the classes present of correct / (correct + wrong), with counts [num_classes] int32.

    A wrong pixel counts for both its label's and its prediction's class. InWrongs and InCorrects are added, and earlier
    InMeanIou are added to the result.
    """
    predictions, labels = predictions.reshape(-1), labels.reshape(-1)
    same = predictions == labels
    zeros = jnp.zeros(num_classes, jnp.int32)
    correct = zeros.at[labels].add(same.astype(jnp.int32), mode="drop")
    different = (~same).astype(jnp.int32)
    wrong = zeros.at[labels].add(different, mode="drop").at[predictions].add(different, mode="drop")
    wrong, correct = sum(in_wrongs or [], wrong), sum(in_corrects or [], correct)
    seen = wrong + correct
    ratios = jnp.where(seen > 0, correct / jnp.maximum(seen, 1), 0).astype(jnp.float32)
    value = (ratios.sum() / (seen > 0).sum()).reshape(1).astype(jnp.float32)
    return sum(in_mean_iou or [], value), wrong, correct


@mean_iou.check
def _(predictions, labels, *, num_classes):
    return [Demand("predictions", predictions, 0, num_classes), Demand("labels", labels, 0, num_classes)]


def _ratio(part, rest):
    """part / (part + rest), 1 where both are 0."""
    whole = part + rest
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1), 1)


def _mean_of(v):
    """The mean as a float32 division rounds it (XLA would multiply by 1 / n)."""
    return (_serial_sum(v).astype(jnp.float64) / v.shape[0]).astype(v.dtype)


def _f1(precision, recall):
    total = precision + recall
    return jnp.where(total > 0, 2 * precision * recall / jnp.where(total > 0, total, 1), 0)


def _serial_sum(v):
    """The sum of v [n], from the first element to the last."""
    return lax.fori_loop(0, v.shape[0], lambda i, total: total + v[i], jnp.zeros((), v.dtype))


def _metrics(states):
    """Macro then micro precision, recall and F1 of states [classes, (TP, FP, TN, FN)]."""
    tp, fp, fn = states[:, 0], states[:, 1], states[:, 3]
    precision, recall = _mean_of(_ratio(tp, fp)), _mean_of(_ratio(tp, fn))
    total = _serial_sum(tp)
    micro_p, micro_r = _ratio(total, _serial_sum(fp)), _ratio(total, _serial_sum(fn))
    found = [precision, recall, _f1(precision, recall), micro_p, micro_r, _f1(micro_p, micro_r)]
    return jnp.stack(found).astype(jnp.float64)


@op(out="BatchMetrics AccumMetrics AccumStatesInfo", diff=(), lod=None)
def precision_recall(max_probs, indices, labels, weights=None, states_info=None, *, class_number: int):
    """Macro- and micro-averaged precision, recall and F1 [6] of the batch and of all batches.

    They are float64 computed from float32 sums over the classes in order, as in Fluid's kernel.

    States [class_number, 4] hold weighted true positives, false positives, true negatives, false negatives.
    """
    indices, labels = indices.reshape(-1), labels.reshape(-1)
    dtype = jnp.float32
    w = jnp.ones(labels.shape, dtype) if weights is None else weights.reshape(-1).astype(dtype)
    count = lambda at, amount: jnp.zeros(class_number, dtype).at[at].add(amount, mode="drop")  # noqa: E731
    right = jnp.where(indices == labels, w, 0)
    tp, fp, fn = count(labels, right), count(indices, w - right), count(labels, w - right)
    batch = jnp.stack([tp, fp, w.sum() - tp - fp - fn, fn], axis=1)
    total = batch if states_info is None else batch + states_info.astype(dtype)
    return _metrics(batch), _metrics(total), total


@precision_recall.check
def _(indices, labels, *, class_number):
    return [Demand("indices", indices, 0, class_number), Demand("labels", labels, 0, class_number)]


@op(out="PositivePair NegativePair NeutralPair?", diff=(), lod=None, slots={"query_id": "QueryID"})
def positive_negative_pair(
    score, label, query_id, accumulate_positive_pair=None, accumulate_negative_pair=None,
    accumulate_neutral_pair=None, weight=None, *, column: int = 0,
):  # fmt: skip
    """Weighted pairs of one query whose Score and Label order agree (positive), disagree (negative) or tie in Score.

    Pairs with equal labels are ignored; the weight of a pair is the mean of both rows' weights.
    """
    s, y, q = score[:, column], label.reshape(-1), query_id.reshape(-1)
    w = jnp.ones(s.shape, score.dtype) if weight is None else weight.reshape(-1)
    rows = jnp.arange(s.shape[0])
    pair = (q[:, None] == q[None]) & (rows[:, None] < rows[None]) & (y[:, None] != y[None])
    amount = jnp.where(pair, (w[:, None] + w[None]) / 2, 0)
    order = (s[:, None] - s[None]) * (y[:, None] - y[None])
    tied = s[:, None] == s[None]
    sums = [jnp.where(order > 0, amount, 0), jnp.where(order > 0, 0, amount), jnp.where(tied, amount, 0)]
    earlier = (accumulate_positive_pair, accumulate_negative_pair, accumulate_neutral_pair)
    return tuple(
        v.sum().reshape(1) if e is None else v.sum().reshape(1) + e for v, e in zip(sums, earlier, strict=True)
    )
