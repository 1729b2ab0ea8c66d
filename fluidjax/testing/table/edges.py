"""Edge cases of much used ops that work element by element: no elements, one element, integers, unequal ranks."""

import numpy as np

from fluidjax.testing.case import Draw, away, case, integers, normal, positive


def sized(name, draw, fn, inputs=None, **attrs):
    """A case without elements and one with a single one, of a function of one tensor."""
    more = inputs or {}
    return [
        case(name, {"X": draw(*shape), **more}, attrs, label, reference=lambda X, fn=fn, **a: fn(X))
        for shape, label in (((0, 3), "size-0"), ((1,), "size-1"))
        if not (name == "square" and label == "size-0")
    ]


def _away(point):
    return lambda *shape: away((point,), *shape)


def _sigmoid(v):
    return 1 / (1 + np.exp(-v))


_UNARY = (
    ("relu", _away(0), lambda v: np.maximum(v, 0)),
    ("leaky_relu", _away(0), lambda v: np.maximum(v, np.float32(0.02) * v)),
    ("sigmoid", normal, _sigmoid),
    ("tanh", normal, np.tanh),
    ("sqrt", positive, np.sqrt),
    ("square", normal, np.square),
    ("log", positive, np.log),
    ("exp", normal, np.exp),
    ("cos", normal, np.cos),
    ("abs", _away(0), np.abs),
    ("floor", lambda *s: away((-2, -1, 0, 1, 2), *s), np.floor),
    ("ceil", lambda *s: away((-2, -1, 0, 1, 2), *s), np.ceil),
    ("assign", normal, lambda v: v),
    ("fill_zeros_like", normal, np.zeros_like),
)


def _pair(x, y):
    return {"X": x, "Y": y}


def _nonzero(*shape: int, dtype: str = "int64") -> Draw:
    """Integers of both signs without zero."""

    def draw(rng):
        values = rng.integers(1, 8, shape) * rng.choice([-1, 1], shape)
        return values.astype(dtype)

    return draw


def _trunc_div(x, y):
    return (np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))).astype(x.dtype)


_INTEGER = (
    ("elementwise_add", np.add),
    ("elementwise_sub", np.subtract),
    ("elementwise_mul", np.multiply),
    ("elementwise_div", _trunc_div),
    ("elementwise_max", np.maximum),
    ("elementwise_min", np.minimum),
    ("elementwise_mod", np.fmod),
    ("elementwise_floordiv", _trunc_div),
)
_COMPARISONS = (
    ("equal", np.equal),
    ("not_equal", np.not_equal),
    ("less_than", np.less),
    ("less_equal", np.less_equal),
    ("greater_than", np.greater),
    ("greater_equal", np.greater_equal),
)


def _negative_integers(name, fn):
    """Operands of both signs: C++ division and remainder round towards zero."""
    return [
        case(
            name,
            _pair(integers(-20, 20, 4, 3, dtype=dtype), _nonzero(3, dtype=dtype)),
            label=f"{dtype}-row",
            reference=lambda X, Y: fn(X, Y),
        )
        for dtype in ("int32", "int64")
    ]


def _compared(name, fn):
    return [
        case(name, _pair(normal(4, 3), normal(4)), {"axis": 0}, "axis", reference=lambda X, Y, axis: fn(X, Y[:, None])),
        case(name, _pair(normal(0, 3), normal(0, 3)), label="size-0", reference=lambda X, Y: fn(X, Y)),
        case(name, _pair(integers(0, 2, 1), integers(0, 2, 1)), label="size-1", reference=lambda X, Y: fn(X, Y)),
    ]


# In the kernels of these three X and Y change places where X has fewer dims; here they do not.
_WIDER_Y = [
    case("elementwise_pow", _pair(positive(3), positive(4, 3)), label="wider-y", reference=lambda X, Y: X**Y),
    case(
        "elementwise_mod",
        _pair(integers(-9, 9, 3), _nonzero(4, 3)),
        label="wider-y",
        reference=lambda X, Y: np.fmod(X, Y),
    ),
    case(
        "elementwise_floordiv",
        _pair(integers(-9, 9, 3), _nonzero(4, 3)),
        label="wider-y",
        reference=lambda X, Y: _trunc_div(X + 0 * Y, Y),
    ),
]

CASES = [
    *(c for name, draw, fn in _UNARY for c in sized(name, draw, fn)),
    *sized("scale", normal, lambda v: 2 * v + 0.5, scale=2.0, bias=0.5),
    *sized("clip", _away(1), lambda v: np.clip(v, -4, 1), min=-4.0, max=1.0),
    *sized("pow", positive, lambda v: v**3, factor=3.0),
    *sized("cast", normal, lambda v: v, in_dtype=6, out_dtype=6),
    *sized("logical_not", lambda *s: lambda rng: rng.random(s) < 0.5, np.logical_not),
    case(
        "relu",
        np.array([-0.0, 0.0, np.inf, -np.inf]),
        label="infinite",
        reference=lambda X: np.maximum(X, 0),
        smooth=False,
    ),
    case(
        "scale",
        integers(-5, 5, 4, dtype="int32"),
        {"scale": -3.0, "bias": 2.0},
        "int32",
        reference=lambda X, scale, bias: (-3 * X + 2).astype(np.int32),
    ),
    case(
        "clip",
        integers(-9, 9, 6),
        {"min": -2.0, "max": 3.0},
        "int64",
        reference=lambda X, min, max: np.clip(X, -2, 3),
    ),
    case("sum", {"X": [integers(0, 9, 3), integers(0, 9, 3)]}, label="int64", reference=lambda X: X[0] + X[1]),
    case("sum", {"X": [normal(0, 3), normal(0, 3)]}, label="size-0", reference=lambda X: X[0]),
    case("sum", {"X": [normal(1), normal(1)]}, label="size-1", reference=lambda X: X[0] + X[1]),
    case("increment", np.array([5]), {"step": 2.0}, "int64", reference=lambda X, step: X + 2),
    case("increment", np.array([5], np.int32), {"step": -1.0}, "int32", reference=lambda X, step: X - np.int32(1)),
    *(c for name, fn in _INTEGER for c in _negative_integers(name, fn)),
    *(c for name, fn in _COMPARISONS for c in _compared(name, fn)),
    *(
        case(name, _pair(draw(1), draw(1)), label="size-1", reference=lambda X, Y, fn=fn: fn(X, Y))
        for name, fn, draw in (
            ("elementwise_add", np.add, normal),
            ("elementwise_sub", np.subtract, normal),
            ("elementwise_mul", np.multiply, normal),
            ("elementwise_div", np.divide, positive),
            ("elementwise_max", np.maximum, normal),
            ("elementwise_min", np.minimum, normal),
            ("elementwise_pow", np.power, positive),
        )
    ),
    *_WIDER_Y,
    *(
        case(
            name,
            _pair(np.array([np.nan, 1.0, 2.0]), np.array([1.0, np.nan, 3.0])),
            label="nan",
            reference=lambda X, Y, last=last: np.array([1.0, np.nan, last]),
            smooth=False,
        )
        for name, last in (("elementwise_max", 3.0), ("elementwise_min", 2.0))
    ),
]
