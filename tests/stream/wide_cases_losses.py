"""Losses, metrics and what treats channels, rows or draws together: see ``wide_cases``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tests.stream.wide_inputs import Case, Input, below, between, bits, positive, reals

Draw = Callable[[np.random.Generator, Mapping[str, int]], np.ndarray]


def _alike(*slots: str, make: Callable[[str], Input] = reals) -> tuple[Case, ...]:
    return (Case(dict.fromkeys(slots, make("b n*m 1")), "bnm"),)


def _lengths(letter: str) -> Draw:
    """Lengths of two sequences, none longer than a dim."""
    return lambda rng, sizes: rng.integers(1, sizes[letter] + 1, 2)


def _chances(dims: str) -> Input:
    return between(dims, 0.1, 0.9)


def _maps(channels: int, **attrs: int) -> tuple[Case, ...]:
    return (Case({"X": reals(f"b {channels} n m")}, "bnm", attrs),)


_DIFFERENT = {"X": reals("b n 3"), "Y": reals("b n 3")}
_CLASSES = {"Logits": reals("b n"), "Label": below("b 1", 3)}

CASES: dict[str, tuple[Case, ...]] = {
    **{name: (Case({"X": make("b n*m 2")}, "bnm"),) for name, make in (
        ("acosh", lambda dims: between(dims, 1.1, 3)), ("asinh", reals), ("atanh", _chances), ("lgamma", positive),
        ("logit", _chances))},
    "minus": _alike("X", "Y"),
    "bce_loss": _alike("X", "Label", make=_chances),
    "hinge_loss": (Case({"Logits": reals("b n*m 1"), "Labels": bits("b n*m 1")}, "bnm"),),
    "modified_huber_loss": (Case({"X": reals("b n*m 1"), "Y": bits("b n*m 1")}, "bnm"),),
    "margin_rank_loss": _alike("X1", "X2", "Label"),
    "rank_loss": _alike("Label", "Left", "Right"),
    "sigmoid_focal_loss": (
        Case({"X": reals("b*n 3"), "Label": below("b*n 1", 4), "FgNum": below("1", 5, 1)}, "bn"),
    ),
    "softmax_with_cross_entropy": (
        Case({"Logits": reals("b n 4"), "Label": below("b n 1", 4)}, "bn", {"ignore_index": 1}),
        Case({"Logits": reals("b 4 n"), "Label": positive("b 4 n")}, "bn", {"axis": 1, "soft_label": True}),
        Case(_CLASSES, "bn", least=3),
        Case(_CLASSES, "bn", {"ignore_index": 2}, least=3),
        Case({"Logits": reals("b n"), "Label": positive("b n")}, "bn", {"soft_label": True}),
        Case({"Logits": reals("b n 2"), "Label": below("b 1 2", 3)}, "bn", {"axis": 1}, least=3),
    ),
    "smooth_l1_loss": (
        Case(_DIFFERENT, "bn", {"sigma": 2.0}),
        Case({**_DIFFERENT, "InsideWeight": positive("b n 3"), "OutsideWeight": positive("b n 3")}, "bn"),
    ),
    "mean_iou": (
        Case({"Predictions": below("2 1 n m", 4), "Labels": below("2 n m", 4)}, "nm", {"num_classes": 4}),
        Case({"Predictions": below("b n*m", 4), "Labels": below("b n m", 4)}, "bnm", {"num_classes": 4}),
        Case({"Predictions": below("n 2", 4), "Labels": below("2 n", 4)}, "", {"num_classes": 4}),
    ),
    "warpctc": tuple(
        Case(
            {"Logits": reals("n 2 4"), "Label": below("2 m", 3), "LogitsLength": _lengths("n"),
             "LabelLength": _lengths("m")},
            "nm",
            {"blank": 3, "norm_by_times": by_times},
            least=3,
        )
        for by_times in (False, True)
    ),
    "add_position_encoding": (Case({"X": reals("b n 4")}, "bn", {"alpha": 0.5, "beta": 2.0}),),
    "row_conv": (
        Case({"X": reals("b n 3"), "Filter": reals("2 3")}, "bn"),
        Case({"X": reals("b n 3"), "Filter": reals("4 3")}, "bn"),
    ),
    "affine_channel": (Case({"X": reals("b 3 n m"), "Scale": reals("3"), "Bias": reals("3")}, "bnm"),),
    "lrn": _maps(3, n=3),
    "maxout": _maps(4, groups=2),
    "shuffle_channel": _maps(4, group=2),
    "pixel_shuffle": _maps(8, upscale_factor=2),
    "unstack": (Case({"X": reals("b 2 n")}, "bn", {"axis": 1, "num": 2}, {"Y": 2}),),
    "unbind": (Case({"X": reals("b n 2")}, "bn", {"axis": -1}, {"Out": 2}),),
    "bernoulli": (Case({"X": _chances("b n 2")}, "bn"),),
    "rrelu": (Case({"X": reals("b n 2")}, "bn"), Case({"X": reals("b n 2")}, "bn", {"is_test": True}, backward=False)),
    "gumbel_softmax": (Case({"X": reals("b n 3")}, "bn", {"temperature": 0.5}), Case({"X": reals("b n")}, "b")),
}  # fmt: skip
