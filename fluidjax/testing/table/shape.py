"""Changes of shape, repetition and order of dims."""

import numpy as np

from fluidjax.testing.case import case, normal


def _both(X, out):
    return out, np.zeros((0, *X.shape))


CASES = [
    *(
        c
        for name in ("reshape", "reshape2")
        for c in (
            case(name, normal(4, 6), {"shape": [0, -1, 3]}, reference=lambda X, shape: X.reshape(4, 2, 3)),
            case(
                name,
                {"X": normal(4, 6), "Shape": np.array([3, 8], np.int32)},
                {"shape": [2, 12]},
                "tensor",
                reference=lambda X, Shape, shape: X.reshape(3, 8),
            ),
        )
    ),
    case(
        "reshape2",
        normal(4, 6),
        {"shape": [6, 4]},
        "twice",
        reference=lambda X, shape: _both(X, X.reshape(6, 4)),
        twice=True,
    ),
    *(
        c
        for name in ("squeeze", "squeeze2")
        for c in (
            case(name, normal(4, 1, 3, 1), {"axes": [1]}, reference=lambda X, axes: X.reshape(4, 3, 1)),
            case(name, normal(4, 1, 3, 1), {"axes": [-1, 0]}, "negative", reference=lambda X, axes: X[..., 0]),
            case(name, normal(4, 1, 3, 1), label="all", reference=lambda X: X.reshape(4, 3)),
        )
    ),
    *(
        c
        for name in ("unsqueeze", "unsqueeze2")
        for c in (
            case(name, normal(4, 3), {"axes": [1]}, reference=lambda X, axes: X[:, None]),
            case(name, normal(4, 3), {"axes": [0, -1]}, "two", reference=lambda X, axes: X[None, ..., None]),
        )
    ),
    *(
        c
        for name in ("flatten", "flatten2")
        for c in (
            case(name, normal(4, 3, 2), {"axis": 2}, reference=lambda X, axis: X.reshape(12, 2)),
            case(name, normal(4, 3, 2), {"axis": 0}, "row", reference=lambda X, axis: X.reshape(1, 24)),
        )
    ),
    *(
        case(name, normal(4, 3, 2), {"axis": [2, 0, 1]}, reference=lambda X, axis: X.transpose(2, 0, 1))
        for name in ("transpose", "transpose2")
    ),
    case("expand", normal(2, 3), {"expand_times": [2, 3]}, reference=lambda X, expand_times: np.tile(X, (2, 3))),
    case(
        "expand",
        {"X": normal(2, 3), "ExpandTimes": np.array([1, 2], np.int32)},
        label="tensor",
        reference=lambda X, ExpandTimes: np.tile(X, (1, 2)),
    ),
    case(
        "expand_as",
        {"X": normal(2, 3), "target_tensor": np.zeros((4, 3))},
        reference=lambda X, target_tensor: np.tile(X, (2, 1)),
        wrt=("X",),
    ),
]
