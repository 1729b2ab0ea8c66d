"""Shape inference by a rule says what tracing the op says, or leaves it to the trace; common layers need no trace."""

import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import fluidjax as fluid
import lowering
import lowering.engine.shapes.infer
from lowering.dtypes import FP32, FP64, INT64
from lowering.engine.shapes.infer import by_probing
from lowering.program import OpView, VarView
from lowering.registry import get_op

# Inputs by slot, and attributes: what is drawn for each op; dims come from DIMS, so that some fit and some do not.
DIMS = (-1, 1, 2, 3, 6)


def _shape(rng: random.Random, low: int = 1, high: int = 4) -> tuple[int, ...]:
    return tuple(rng.choice(DIMS) for _ in range(rng.randint(low, high)))


def _changed(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape``, now and then with another dim in one place."""
    if not shape or rng.random() < 0.7:
        return shape
    at = rng.randrange(len(shape))
    return (*shape[:at], rng.choice(DIMS), *shape[at + 1 :])


# The shape of a slot's tensor, or the shapes of several.
Drawn = tuple[dict[str, Any], dict[str, Any]]


def _one(rng: random.Random) -> Drawn:
    return {"X": _shape(rng)}, {}


def _several(rng: random.Random) -> Drawn:
    x = _shape(rng)
    return {"X": [x, *(_changed(rng, x) for _ in range(rng.randint(0, 2)))]}, {}


def _softmax(rng: random.Random) -> Drawn:
    return {"X": _shape(rng)}, {"axis": rng.randint(-3, 2)}


def _mul(rng: random.Random) -> Drawn:
    x, split, columns = _shape(rng, 2), rng.randint(1, 2), rng.randint(1, 2)
    y = _changed(rng, x[split:]) + _shape(rng, 1, 2)
    return {"X": x, "Y": y}, {"x_num_col_dims": split, "y_num_col_dims": columns}


def _matmul(rng: random.Random) -> Drawn:
    x = _shape(rng)
    y = (*_changed(rng, x[:-2]), *reversed(_changed(rng, x[-2:])))
    turned = {f"transpose_{slot}": rng.random() < 0.4 for slot in "XY"}
    return {"X": x, "Y": y}, turned | {"alpha": 0.5}


def _labelled(rng: random.Random) -> Drawn:
    x = _shape(rng, 2)
    return {"X": x, "Label": _changed(rng, (*x[:-1], 1))}, {}


def _looked_up(rng: random.Random) -> Drawn:
    return {"W": _changed(rng, (6, 3)), "Ids": (*_shape(rng, 1, 2), rng.choice((1, 1, 2)))}, {}


def _layer_norm(rng: random.Random) -> Drawn:
    x, split = _shape(rng, 2), rng.randint(1, 2)
    size = 1
    for dim in x[split:]:
        size *= abs(dim)
    return {"X": x} | {s: _changed(rng, (size,)) for s in ("Scale", "Bias") if rng.random() < 0.7}, {
        "begin_norm_axis": split
    }


def _batch_norm(rng: random.Random) -> Drawn:
    x, layout = _shape(rng, 2), rng.choice(("NCHW", "NHWC"))
    channels = x[-1 if layout == "NHWC" else 1]
    slots = {slot: _changed(rng, (abs(channels),)) for slot in ("Scale", "Bias", "Mean", "Variance")}
    return {"X": x, **slots}, {"data_layout": layout, "is_test": rng.random() < 0.3}


def _image(rng: random.Random) -> tuple[int, ...]:
    return (rng.choice((-1, 2)), rng.choice((4, 4, 6)), rng.choice((5, 7, 8, -1)), rng.choice((3, 6, 9)))


def _windows(rng: random.Random) -> dict[str, Any]:
    return {
        "strides": [rng.randint(1, 3), 1],
        "paddings": rng.choice(([0, 0], [1, 2], [0, 1, 2, 1])),
        "padding_algorithm": rng.choice(("EXPLICIT", "EXPLICIT", "SAME", "VALID")),
        "data_format": rng.choice(("NCHW", "NCHW", "NCHW", "NHWC")),
    }


def _conv(rng: random.Random) -> Drawn:
    groups = rng.choice((1, 1, 2))
    kernel = (rng.choice((2, 4, 3)), 4 // groups, rng.choice((1, 3, 5)), rng.choice((1, 2)))
    attrs = {"groups": groups, "dilations": [rng.choice((1, 2)), 1]}
    return {"Input": _image(rng), "Filter": kernel}, attrs | _windows(rng)


def _pool(rng: random.Random) -> Drawn:
    flags = {name: rng.random() < 0.3 for name in ("global_pooling", "adaptive", "ceil_mode", "exclusive")}
    attrs = {"ksize": [rng.randint(1, 4), 2], "pooling_type": rng.choice(("max", "avg"))}
    return {"X": _image(rng)}, attrs | flags | _windows(rng)


def _reduce(rng: random.Random) -> Drawn:
    x = _shape(rng)
    dims = [rng.randint(-4, 3) for _ in range(rng.randint(0, 2))]
    flags = {name: rng.random() < 0.3 for name in ("keep_dim", "reduce_all")}
    return {"X": x}, {"dim": dims, "out_dtype": rng.choice((-1, -1, -1, FP64)), **flags}


def _transpose(rng: random.Random) -> Drawn:
    x = _shape(rng)
    return {"X": x}, {"axis": rng.sample(range(len(x)), len(x) - (rng.random() < 0.1))}


def _scale(rng: random.Random) -> Drawn:
    x, scales = _shape(rng), {"ScaleTensor": (1,)} if rng.random() < 0.2 else {}
    return {"X": x, **scales}, {"scale": 0.5, "bias": rng.choice((0.0, 2.0))}


def _dropout(rng: random.Random) -> Drawn:
    x, seed = _shape(rng), {"Seed": (1,)} if rng.random() < 0.2 else {}
    return {"X": x, **seed}, {"is_test": rng.random() < 0.3, "dropout_prob": rng.choice((0.3, 1.0))}


def _logits(rng: random.Random) -> Drawn:
    x = _shape(rng)
    weight = {"pos_weight": x} if rng.random() < 0.2 else {}
    return {"X": x, "Label": _changed(rng, x), **weight}, {"normalize": rng.random() < 0.3}


CASES: dict[str, Callable[[random.Random], Drawn]] = {
    **dict.fromkeys(("relu", "tanh", "sqrt", "abs", "square", "leaky_relu", "gelu", "mean"), _one),
    "softmax": _softmax,
    "mul": _mul,
    "matmul": _matmul,
    "cross_entropy": _labelled,
    "cross_entropy2": _labelled,
    "lookup_table": _looked_up,
    "lookup_table_v2": _looked_up,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "conv2d": _conv,
    "pool2d": _pool,
    **dict.fromkeys(("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"), _reduce),
    **dict.fromkeys(("transpose", "transpose2"), _transpose),
    "sum": _several,
    "scale": _scale,
    "dropout": _dropout,
    "sigmoid_cross_entropy_with_logits": _logits,
}
DRAWS = 14


def _inferred(infer: Callable[..., Any], *arguments: Any) -> Any:
    try:
        found = infer(*arguments)
    except lowering.LoweringError as error:
        return str(error)
    return {name: info for name, info in found.items() if not name.startswith(("Mean.", "Variance."))}


@pytest.mark.parametrize("type", CASES)
def test_rules_say_what_a_trace_says(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, definition = random.Random(zlib.crc32(type.encode())), get_op(type)
    probed: list[Any] = []
    monkeypatch.setattr("lowering.engine.shapes.infer_rules.by_probing", lambda *a: probed.append(a) or by_probing(*a))
    for _ in range(DRAWS):
        shapes, attrs = CASES[type](rng)
        dtypes = {slot: INT64 if slot in ("Label", "Ids") else rng.choice((FP32, FP32, FP64)) for slot in shapes}
        if rng.random() < 0.8:
            dtypes = {slot: d if d == INT64 else FP32 for slot, d in dtypes.items()}
        named = {slot: shape if isinstance(shape, list) else [shape] for slot, shape in shapes.items()}
        variables = {
            f"{slot}.{i}": VarView(f"{slot}.{i}", dtype=dtypes[slot], shape=shape, lod_level=rng.choice((0, 0, 1)))
            for slot, listed in named.items()
            for i, shape in enumerate(listed)
        }
        outputs = {slot.name: [f"{slot.name}.0"] for slot in definition.outputs if slot.name != "ReserveSpace"}
        inputs = {slot: [f"{slot}.{i}" for i in range(len(listed))] for slot, listed in named.items()}
        op = OpView(type, inputs, outputs, attrs)
        expected = _inferred(by_probing, definition, op, variables.get)
        assert _inferred(definition.infer, op, variables.get) == expected, (op, variables)
    assert len(probed) < DRAWS, "the rule never answered"


def test_a_common_network_is_built_without_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    def traced(definition: Any, *rest: Any) -> None:
        raise AssertionError(f"traced {definition.type}")

    monkeypatch.setattr(lowering.engine.shapes.infer, "_evaluate", traced)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        words, label = fluid.data("words", [None, 7], "int64"), fluid.data("label", [None, 1], "int64")
        found = fluid.layers.layer_norm(fluid.embedding(words, [60, 5]), begin_norm_axis=2)
        found = fluid.layers.dropout(fluid.layers.transpose(found, [0, 2, 1]) * 2.0, 0.1)
        scores = fluid.layers.softmax(fluid.layers.matmul(found, found, transpose_y=True))
        hidden = fluid.layers.batch_norm(fluid.layers.fc(scores, 9, act="relu"))
        cost = fluid.layers.cross_entropy(fluid.layers.fc(hidden, 4, act="softmax"), label)
        loss = fluid.layers.mean(cost) + 0.1 * fluid.layers.reduce_sum(fluid.layers.square(hidden))
        fluid.optimizer.Adam(0.1).minimize(loss)
    assert (hidden.shape, loss.shape) == ((-1, 9), (1,))
