"""Binary operators, comparisons and logic."""

import numpy as np

from fluidjax.testing.case import away, case, distinct, flags, integers, normal, positive

ADD = "elementwise_add"


def _pair(x, y):
    return {"X": x, "Y": y}


def _middle(v):
    """A [3, 4] operand against [2, 3, 4, 5] from axis 1."""
    return v[None, :, :, None]


_ARITHMETIC = [
    (name, fn, draw)
    for name, fn, draw in (
        (ADD, np.add, normal),
        ("elementwise_sub", np.subtract, normal),
        ("elementwise_mul", np.multiply, normal),
        ("elementwise_div", np.divide, positive),
        ("elementwise_max", np.maximum, distinct),
        ("elementwise_min", np.minimum, distinct),
        ("elementwise_pow", np.power, positive),
    )
]
_TWICE = (ADD, "elementwise_sub", "elementwise_mul", "elementwise_div")


def _away_from(draw, offset):
    """The second operand of an extremum never equals the first."""
    return lambda rng: draw(rng) + offset


def _broadcasts(name, fn, draw):
    second = (lambda *s: _away_from(draw(*s), 0.07)) if draw is distinct else draw
    twice = name in _TWICE
    return [
        case(name, _pair(draw(4, 3), second(4, 3)), reference=lambda X, Y: fn(X, Y), twice=twice),
        case(name, _pair(draw(4, 3), second(3)), label="row", reference=lambda X, Y: fn(X, Y), twice=twice),
        case(name, _pair(draw(4, 3), second(1)), label="scalar", reference=lambda X, Y: fn(X, Y)),
        case(
            name,
            _pair(draw(2, 3, 4, 5), second(3, 4)),
            {"axis": 1},
            "axis",
            reference=lambda X, Y, axis: fn(X, _middle(Y)),
        ),
        case(name, _pair(draw(3), second(4, 3)), label="small-x", reference=lambda X, Y: fn(X, Y)),
        case(name, _pair(draw(4, 3), second(4, 1)), {"axis": 0}, "ones", reference=lambda X, Y, axis: fn(X, Y)),
        case(name, _pair(draw(0, 3), second(3)), label="empty", reference=lambda X, Y: fn(X, Y)),
    ]


def _truncated(x, y):
    return (np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))).astype(x.dtype)


INT = _pair(integers(-9, 9, 4, 3), integers(1, 5, 4, 3))

CASES = [
    *(c for name, fn, draw in _ARITHMETIC for c in _broadcasts(name, fn, draw)),
    case("elementwise_div", INT, label="int", reference=lambda X, Y: _truncated(X, Y)),
    case("elementwise_floordiv", INT, reference=lambda X, Y: _truncated(X, Y)),
    case("elementwise_mod", INT, reference=lambda X, Y: np.fmod(X, Y)),
    case(
        "elementwise_mod", _pair(away((0,), 4, 3), positive(4, 3)), label="float", reference=lambda X, Y: np.mod(X, Y)
    ),
    case("elementwise_pow", _pair(integers(0, 5, 4), integers(0, 4, 4)), label="int", reference=lambda X, Y: X**Y),
    case("minus", _pair(normal(4, 3), normal(4, 3)), reference=lambda X, Y: X - Y),
    *(
        case(name, _pair(integers(0, 3, 4, 3), integers(0, 3, 3)), reference=lambda X, Y, fn=fn: fn(X, Y))
        for name, fn in (
            ("equal", np.equal),
            ("not_equal", np.not_equal),
            ("less_than", np.less),
            ("less_equal", np.less_equal),
            ("greater_than", np.greater),
            ("greater_equal", np.greater_equal),
        )
    ),
    case("equal_reduce", _pair(np.arange(3), np.arange(3)), reference=lambda X, Y: np.array([True])),
    case("equal_reduce", _pair(np.arange(3), np.ones(3, int)), label="no", reference=lambda X, Y: np.array([False])),
    case("logical_and", _pair(flags(4, 3), flags(4, 3)), reference=lambda X, Y: X & Y),
    case("logical_or", _pair(flags(4, 3), flags(4, 3)), reference=lambda X, Y: X | Y),
    case("logical_xor", _pair(flags(4, 3), flags(4, 3)), reference=lambda X, Y: X ^ Y),
    case("logical_not", flags(4, 3), reference=lambda X: ~X),
    case("is_empty", normal(0, 3), reference=lambda X: np.array([True])),
]
