"""Joining, splitting, order, margins and parts of tensors."""

import numpy as np

from fluidjax.testing.case import case, normal


def _xs(*draws):
    return {"X": list(draws)}


_PARTS = _xs(normal(4, 6), normal(4, 6))


def _pad2d(mode):
    return lambda X, **a: np.pad(X, ((0, 0), (0, 0), (1, 2), (2, 1)), mode=mode)


CASES = [
    case("concat", _xs(normal(4, 3), normal(4, 2)), {"axis": -1}, reference=lambda X, axis: np.concatenate(X, -1)),
    case("concat", _xs(normal(2, 3), normal(0, 3), normal(1, 3)), label="rows", reference=lambda X: np.concatenate(X)),
    case(
        "concat",
        {"X": [normal(4, 3), normal(4, 2)], "AxisTensor": np.array([1], np.int32)},
        label="tensor",
        reference=lambda X, AxisTensor: np.concatenate(X, 1),
    ),
    case("split", normal(4, 6), {"num": 3, "axis": 1}, counts={"Out": 3}, reference=lambda X, **a: np.split(X, 3, 1)),
    case(
        "split",
        normal(6, 2),
        {"sections": [1, -1, 2]},
        "sections",
        counts={"Out": 3},
        reference=lambda X, sections: np.split(X, [1, 4]),
    ),
    case("stack", _xs(normal(4, 3), normal(4, 3)), {"axis": 1}, reference=lambda X, axis: np.stack(X, 1)),
    case(
        "unstack",
        normal(4, 3),
        {"axis": 1, "num": 3},
        counts={"Y": 3},
        reference=lambda X, axis, num: [X[:, i] for i in range(3)],
    ),
    case("unbind", normal(2, 3), counts={"Out": 2}, reference=lambda X: list(X)),
    case(
        "partial_concat",
        _PARTS,
        {"start_index": 1, "length": 2},
        reference=lambda X, **a: np.concatenate([v[:, 1:3] for v in X], 1),
    ),
    case("partial_sum", _PARTS, {"start_index": -2}, reference=lambda X, start_index: sum(v[:, 4:] for v in X)),
    case("reverse", normal(4, 3), {"axis": [0, 1]}, reference=lambda X, axis: X[::-1, ::-1]),
    case("flip", normal(4, 3), {"dims": [-1]}, reference=lambda X, dims: X[:, ::-1]),
    case(
        "roll", normal(4, 3), {"shifts": [1, -1], "dims": [0, 1]}, reference=lambda X, **a: np.roll(X, (1, -1), (0, 1))
    ),
    case("roll", normal(4, 3), {"shifts": [2]}, "flat", reference=lambda X, shifts: np.roll(X, 2)),
    case(
        "pad",
        normal(4, 3),
        {"paddings": [1, 0, 0, 2], "pad_value": 0.5},
        reference=lambda X, **a: np.pad(X, ((1, 0), (0, 2)), constant_values=0.5),
    ),
    case(
        "pad_constant_like",
        {"X": np.zeros((4, 3)), "Y": normal(2, 2)},
        reference=lambda X, Y: np.pad(Y, ((0, 2), (0, 1))),
    ),
    *(
        case("pad2d", normal(2, 3, 4, 5), {"paddings": [1, 2, 2, 1], "mode": mode}, mode, reference=_pad2d(mode))
        for mode in ("constant", "reflect", "edge")
    ),
    case(
        "pad2d",
        {"X": normal(2, 4, 5, 3), "Paddings": np.array([1, 0, 0, 1], np.int32)},
        {"paddings": [], "data_format": "NHWC"},
        "tensor",
        reference=lambda X, Paddings, **a: np.pad(X, ((0, 0), (1, 0), (0, 1), (0, 0))),
    ),
    case(
        "slice",
        {"Input": normal(4, 5, 6)},
        {"axes": [1, 2], "starts": [-3, 1], "ends": [100, -1]},
        reference=lambda Input, **a: Input[:, -3:, 1:-1],
    ),
    case(
        "slice",
        {"Input": normal(4, 5)},
        {"axes": [0, 1], "starts": [1, 2], "ends": [2, 3], "decrease_axis": [0, 1]},
        "element",
        reference=lambda Input, **a: Input[1, 2].reshape(1),
    ),
    case(
        "slice",
        {"Input": normal(4, 5), "StartsTensorList": [np.array([1])], "EndsTensorList": [np.array([3])]},
        {"axes": [0], "infer_flags": [-1]},
        "tensors",
        reference=lambda Input, **a: Input[1:3],
    ),
    case(
        "strided_slice",
        {"Input": normal(4, 7)},
        {"axes": [0, 1], "starts": [3, 1], "ends": [0, 7], "strides": [-1, 2]},
        reference=lambda Input, **a: Input[3:0:-1, 1:7:2],
    ),
    case("crop", normal(4, 5), {"offsets": [1, 2], "shape": [2, 3]}, reference=lambda X, **a: X[1:3, 2:5]),
    case(
        "crop",
        {"X": normal(4, 5), "Y": np.zeros((2, 3)), "Offsets": np.array([2, 0], np.int32)},
        label="tensors",
        reference=lambda X, Y, Offsets: X[2:4, 0:3],
    ),
    case("crop_tensor", normal(4, 5), {"offsets": [1, 2], "shape": [-1, 3]}, reference=lambda X, **a: X[1:, 2:5]),
]
