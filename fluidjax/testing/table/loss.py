"""Losses and look-ups."""

import numpy as np

from fluidjax.testing.case import between, case, integers, normal, positive


def _softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _probabilities(*shape):
    return lambda rng: _softmax(rng.standard_normal(shape))


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _softplus(x):
    return np.log1p(np.exp(x))


def _cross_entropy(X, Label, soft_label=False, ignore_index=-100):
    if soft_label:
        return -(Label * np.log(X)).sum(-1, keepdims=True)
    return np.where(Label == ignore_index, 0, -np.log(np.take_along_axis(X, Label, -1)))


def _softmax_ce(Logits, Label, soft_label=False, axis=-1, ignore_index=-100):
    p = _softmax(Logits, axis)
    if soft_label:
        return p, -(Label * np.log(p)).sum(axis, keepdims=True)
    return p, np.where(Label == ignore_index, 0, -np.log(np.take_along_axis(p, Label, axis)))


def _sigmoid_ce(X, Label, normalize=False, ignore_index=-100):
    loss = np.where(Label == ignore_index, 0, _softplus(X) - X * Label)
    return loss / (Label != ignore_index).sum() if normalize else loss


def _smooth_l1(X, Y, InsideWeight, OutsideWeight, sigma=1.0):
    d, s2 = InsideWeight * (X - Y), sigma * sigma
    value = np.where(np.abs(d) < 1 / s2, 0.5 * s2 * d * d, np.abs(d) - 0.5 / s2) * OutsideWeight
    return d, value.reshape(len(X), -1).sum(1, keepdims=True)


def _huber(X, Y, delta):
    r = Y - X
    return r, np.where(np.abs(r) <= delta, 0.5 * r * r, delta * (np.abs(r) - 0.5 * delta))


def _modified_huber(X, Y):
    v = X * (2 * Y - 1)
    return v, np.where(v < -1, -4 * v, np.where(v < 1, (1 - v) ** 2, 0))


def _kldiv(X, Target, reduction):
    loss = Target * (np.log(Target) - X)
    if reduction == "none":
        return loss
    return np.array([{"mean": loss.mean(), "sum": loss.sum(), "batchmean": loss.sum() / len(X)}[reduction]])


def _bpr(X, Label):
    rows = [np.delete(x, c) - x[c] for x, c in zip(X, Label[:, 0], strict=True)]
    return np.array([[_softplus(r).mean()] for r in rows])


def _hsigmoid(X, W, Label, Bias, num_classes):
    depth = int(num_classes - 1).bit_length()
    pre = np.zeros((len(X), depth))
    bits = np.zeros_like(pre)
    for n, code in enumerate(Label[:, 0] + num_classes):
        for j in range(int(code).bit_length() - 1):
            node = (code >> (j + 1)) - 1
            pre[n, j], bits[n, j] = X[n] @ W[node] + Bias[node, 0], (code >> j) & 1
    return (_softplus(pre) - bits * pre).sum(1, keepdims=True), _softplus(pre)


def _nce(Input, Label, Weight, Bias, num_total_classes, num_neg_samples, custom_neg_classes):
    drawn = np.tile(custom_neg_classes, (len(Input), 1))
    classes = np.concatenate([Label, drawn], 1)
    o = _sigmoid(np.einsum("nd,nkd->nk", Input, Weight[classes]) + Bias[classes, 0])
    b = num_neg_samples / num_total_classes
    cost = -np.log(o / (o + b))[:, :1] - np.log(b / (o + b))[:, 1:].sum(1, keepdims=True)
    return cost, o, classes


def _center(X, Label, Centers, CenterUpdateRate, cluster_num, need_update):
    diff = X - Centers[Label]
    out = Centers.copy()
    for c in range(cluster_num if need_update else 0):
        mine = diff[Label == c]
        out[c] += CenterUpdateRate[0] * mine.sum(0) / (1 + len(mine))
    return out, diff, 0.5 * (diff**2).sum(1, keepdims=True)


def _teacher(X, Label):
    click = ((Label >= -1) & (Label < 0)) | (Label >= 1)
    teacher = np.where(Label >= 1, Label - 1, Label)
    return _softplus(X) - X * click + np.where(Label >= 0, _softplus(X) - X * teacher, 0)


def _focal(X, Label, FgNum, gamma=2.0, alpha=0.25):
    p, at = _sigmoid(X), (Label == np.arange(1, X.shape[1] + 1)).astype(float)
    off = (Label != -1) * (1 - at)
    loss = -at * alpha * (1 - p) ** gamma * np.log(p) - off * (1 - alpha) * p**gamma * np.log(1 - p)
    return loss / max(FgNum[0], 1)


def _nll(X, Label, Weight, reduction="mean"):
    w = Weight[Label]
    losses = -w * X[np.arange(len(X)), Label]
    if reduction == "none":
        return losses, np.zeros(1)
    return np.array([losses.sum() / (w.sum() if reduction == "mean" else 1)]), np.array([w.sum()])


def _hinge(Logits, Labels):
    return np.maximum(0, 1 - Logits * (2 * Labels - 1))


def _log_loss(Predicted, Labels, epsilon):
    return -Labels * np.log(Predicted + epsilon) - (1 - Labels) * np.log(1 - Predicted + epsilon)


LABEL = integers(0, 4, 5, 1)
BITS = integers(0, 2, 5, 1, dtype="float64")
FIVE = normal(5, 1)
RANKED = {"Label": BITS, "Left": FIVE, "Right": normal(5, 1)}
EPSILON = float(np.float32(1e-4))

CASES = [
    case("cross_entropy", {"X": _probabilities(5, 4), "Label": LABEL}, reference=_cross_entropy),
    case(
        "cross_entropy",
        {"X": _probabilities(5, 4), "Label": _probabilities(5, 4)},
        {"soft_label": True},
        "soft",
        reference=_cross_entropy,
    ),
    case(
        "cross_entropy",
        {"X": _probabilities(5, 4), "Label": LABEL},
        {"ignore_index": 2},
        "ignore",
        reference=_cross_entropy,
    ),
    case("cross_entropy2", {"X": _probabilities(5, 4), "Label": LABEL}, {"ignore_index": 1}, reference=_cross_entropy),
    case("softmax_with_cross_entropy", {"Logits": normal(5, 4), "Label": LABEL}, reference=_softmax_ce),
    case(
        "softmax_with_cross_entropy",
        {"Logits": normal(5, 4), "Label": LABEL},
        {"ignore_index": 2},
        "ignore",
        reference=_softmax_ce,
    ),
    case(
        "softmax_with_cross_entropy",
        {"Logits": normal(5, 4, 3), "Label": integers(0, 4, 5, 1, 3)},
        {"axis": 1},
        "axis",
        reference=_softmax_ce,
    ),
    case(
        "softmax_with_cross_entropy",
        {"Logits": normal(5, 4), "Label": _probabilities(5, 4)},
        {"soft_label": True},
        "soft",
        reference=_softmax_ce,
    ),
    case(
        "sigmoid_cross_entropy_with_logits",
        {"X": normal(5, 3), "Label": between(0, 1, 5, 3)},
        reference=_sigmoid_ce,
    ),
    case(
        "sigmoid_cross_entropy_with_logits",
        {"X": normal(5, 3), "Label": integers(-1, 2, 5, 3, dtype="float64")},
        {"normalize": True, "ignore_index": -1},
        "normalize",
        reference=_sigmoid_ce,
    ),
    case(
        "bce_loss",
        {"X": between(0.1, 0.9, 5, 3), "Label": between(0, 1, 5, 3)},
        reference=lambda X, Label: -Label * np.log(X) - (1 - Label) * np.log(1 - X),
    ),
    case("log_loss", {"Predicted": between(0.1, 0.9, 5, 1), "Labels": BITS}, {"epsilon": EPSILON}, reference=_log_loss),
    case("hinge_loss", {"Logits": FIVE, "Labels": BITS}, reference=_hinge),
    case("huber_loss", {"X": FIVE, "Y": normal(5, 1)}, {"delta": 0.5}, reference=_huber),
    case("modified_huber_loss", {"X": FIVE, "Y": BITS}, reference=_modified_huber),
    case(
        "smooth_l1_loss",
        {"X": normal(4, 3), "Y": normal(4, 3), "InsideWeight": normal(4, 3), "OutsideWeight": normal(4, 3)},
        {"sigma": 2.0},
        reference=_smooth_l1,
    ),
    case("smooth_l1_loss", {"X": normal(4, 3, 2), "Y": normal(4, 3, 2)}, label="bare"),
    *(
        case("kldiv_loss", {"X": normal(4, 3), "Target": positive(4, 3)}, {"reduction": r}, r, reference=_kldiv)
        for r in ("none", "batchmean", "sum")
    ),
    case("kldiv_loss", {"X": normal(4, 3), "Target": positive(4, 3)}, {"reduction": "mean"}, reference=_kldiv),
    case("label_smooth", normal(4, 5), {"epsilon": 0.25}, reference=lambda X, epsilon: 0.75 * X + 0.05),
    case(
        "label_smooth",
        {"X": normal(4, 5), "PriorDist": positive(1, 5)},
        {"epsilon": 0.25},
        "prior",
        wrt=("X",),
        reference=lambda X, PriorDist, epsilon: 0.75 * X + 0.25 * PriorDist,
    ),
    case(
        "rank_loss",
        RANKED,
        reference=lambda Label, Left, Right: _softplus(Left - Right) - Label * (Left - Right),
    ),
    case(
        "margin_rank_loss",
        {"X1": FIVE, "X2": normal(5, 1), "Label": lambda rng: rng.choice([-1.0, 1.0], (5, 1))},
        {"margin": 0.25},
        reference=lambda X1, X2, Label, margin: (None, np.maximum(0, margin - Label * (X1 - X2))),
    ),
    case("bpr_loss", {"X": normal(5, 4), "Label": LABEL}, reference=_bpr),
    case(
        "squared_l2_distance",
        {"X": normal(4, 3), "Y": normal(1, 3)},
        reference=lambda X, Y: (X - Y, ((X - Y) ** 2).sum(1, keepdims=True)),
    ),
    case("squared_l2_distance", {"X": normal(4, 3), "Y": normal(4, 3)}, label="rows"),
    case(
        "teacher_student_sigmoid_loss",
        {"X": normal(6, 1), "Label": np.array([[-2.0], [-1.0], [0.3], [1.4], [0.0], [1.0]])},
        reference=_teacher,
    ),
    case(
        "center_loss",
        {"X": normal(5, 3), "Label": integers(0, 4, 5), "Centers": normal(4, 3), "CenterUpdateRate": np.array([0.1])},
        {"cluster_num": 4, "need_update": True},
        wrt=("X",),
        reference=_center,
    ),
    case(
        "sigmoid_focal_loss",
        {"X": normal(5, 3), "Label": integers(-1, 4, 5, 1, dtype="int32"), "FgNum": np.array([3], np.int32)},
        reference=_focal,
    ),
    *(
        case(
            "nll_loss",
            {"X": normal(5, 4), "Label": integers(0, 4, 5), "Weight": positive(4)},
            {"reduction": r},
            label,
            wrt=("X",),
            reference=_nll,
        )
        for r, label in (("mean", ""), ("none", "none"), ("sum", "sum"))
    ),
    case(
        "nce",
        {"Input": normal(5, 3), "Label": integers(0, 7, 5, 1), "Weight": normal(7, 3), "Bias": normal(7, 1)},
        {"num_total_classes": 7, "num_neg_samples": 3, "custom_neg_classes": [0, 2, 5]},
        reference=_nce,
    ),
    case(
        "nce",
        {"Input": normal(5, 3), "Label": integers(0, 7, 5, 2), "Weight": normal(7, 3), "SampleWeight": positive(5, 1)},
        {"num_total_classes": 7, "num_neg_samples": 3, "sampler": 1},
        "log-uniform",
        wrt=("Input", "Weight"),
    ),
    case(
        "hierarchical_sigmoid",
        {"X": normal(5, 3), "W": normal(5, 3), "Label": integers(0, 6, 5, 1), "Bias": normal(5, 1)},
        {"num_classes": 6},
        reference=_hsigmoid,
    ),
    case(
        "hierarchical_sigmoid",
        {
            "X": normal(2, 3),
            "W": normal(4, 3),
            "Label": np.array([[0], [1]]),
            "PathTable": np.array([[0, 1, 3], [0, 2, -1]]),
            "PathCode": np.array([[0, 1, 1], [1, 0, -1]]),
        },
        {"num_classes": 4},
        "tree",
    ),
    case(
        "sample_logits",
        {"Logits": normal(3, 20), "Labels": integers(0, 20, 3, 2)},
        {"num_samples": 5, "remove_accidental_hits": False},
    ),
    case(
        "lookup_table",
        {"W": normal(6, 3), "Ids": integers(0, 6, 5, 1)},
        reference=lambda W, Ids: W[Ids[:, 0]],
    ),
    case(
        "lookup_table",
        {"W": normal(6, 3), "Ids": integers(0, 6, 5, 1)},
        {"padding_idx": 2},
        "padding",
        reference=lambda W, Ids, padding_idx: W[Ids[:, 0]] * (Ids != padding_idx),
    ),
    case("lookup_table_v2", {"W": normal(6, 3), "Ids": integers(0, 6, 5, 2)}, reference=lambda W, Ids: W[Ids]),
    case(
        "cvm",
        {"X": positive(4, 5), "CVM": positive(4, 2)},
        {"use_cvm": True},
        smooth=False,
        wrt=("X",),
        reference=lambda X, CVM, use_cvm: np.concatenate(
            [np.log(X[:, :1] + 1), np.log(X[:, 1:2] + 1) - np.log(X[:, :1] + 1), X[:, 2:]], 1
        ),
    ),
]
