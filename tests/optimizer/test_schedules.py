"""Learning-rate schedules: the values of the first steps against their formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

STEPS = 7
layers = fluid.layers


def warm(step: int) -> float:
    return 0.01 + (0.1 - 0.01) * step / 3 if step < 3 else 0.1 * 0.5 ** (step / 2)


SCHEDULES: dict[str, tuple[Callable[[], Any], Callable[[int], float]]] = {
    "noam": (
        lambda: layers.noam_decay(16, 3, 2.0),
        lambda s: 2.0 * 16**-0.5 * min((s + 1) ** -0.5, 3**-1.5 * (s + 1)),
    ),
    "exponential": (lambda: layers.exponential_decay(0.1, 2, 0.5), lambda s: 0.1 * 0.5 ** (s / 2)),
    "staircase": (lambda: layers.exponential_decay(0.1, 2, 0.5, True), lambda s: 0.1 * 0.5 ** (s // 2)),
    "natural": (lambda: layers.natural_exp_decay(0.1, 2, 0.5), lambda s: 0.1 * math.exp(-0.5 * s / 2)),
    "inverse": (lambda: layers.inverse_time_decay(0.1, 2, 0.5, True), lambda s: 0.1 / (1 + 0.5 * (s // 2))),
    "polynomial": (
        lambda: layers.polynomial_decay(0.1, 4, 0.01, 2.0),
        lambda s: 0.09 * (1 - min(s, 4) / 4) ** 2 + 0.01,
    ),
    "cycle": (
        lambda: layers.polynomial_decay(0.1, 2, 0.01, 1.0, cycle=True),
        lambda s: 0.09 * (1 - s / (2 * max(1, math.ceil(s / 2)))) + 0.01,
    ),
    "piecewise": (
        lambda: layers.piecewise_decay([2, 4], [0.3, 0.2, 0.1]),
        lambda s: [0.3, 0.2, 0.1][(s >= 2) + (s >= 4)],
    ),
    "cosine": (
        lambda: layers.cosine_decay(0.1, 2, 4),
        lambda s: 0.05 * (math.cos((s // 2) * math.pi / 4) + 1),
    ),
    "warmup": (lambda: layers.linear_lr_warmup(layers.exponential_decay(0.1, 2, 0.5), 3, 0.01, 0.1), warm),
    "warmup_constant": (
        lambda: layers.linear_lr_warmup(0.5, 3, 0.0, 0.3),
        lambda s: 0.1 * s if s < 3 else 0.5,
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_values(name: str) -> None:
    make, formula = SCHEDULES[name]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        rate = make()
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        seen = [float(np.asarray(exe.run(main, fetch_list=[rate])[0]).reshape(-1)[0]) for _ in range(STEPS)]
    np.testing.assert_allclose(seen, [formula(step) for step in range(STEPS)], rtol=1e-5)


def test_the_counter_is_shared() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        layers.exponential_decay(0.1, 2, 0.5)
        layers.inverse_time_decay(0.1, 2, 0.5)
    assert [op.type for op in main.global_block().ops].count("increment") == 1
    assert main.global_block().ops[0].type == "increment"


# What 1.8.5 computes, to the last bit. A product that meets a sum unrounded once made polynomial_decay NaN.
EXACT: list[tuple[Callable[[], Any], list[float]]] = [
    (
        lambda: layers.polynomial_decay(1.0, 5, 0.01, 0.5),
        [1.0, 0.8954829, 0.7768507, 0.636131, 0.45274144, 0.01, 0.01, 0.01],
    ),
    (
        lambda: layers.polynomial_decay(0.1, 11, 0.01, 1.7),
        [0.1, 0.086537614, 0.07398633, 0.06237547, 0.051738955, 0.042116784, 0.033557214, 0.026120441],
    ),
    (
        lambda: layers.linear_lr_warmup(layers.exponential_decay(1.0, 5, 0.5), 4, 0.1, 0.9),
        [0.1, 0.3, 0.5, 0.70000005, 0.57434916, 0.5, 0.43527526, 0.37892914],
    ),
    (
        lambda: layers.linear_lr_warmup(0.5, 7, 0.1, 0.9),
        [0.1, 0.21428573, 0.32857144, 0.44285718, 0.5571429, 0.6714286, 0.7857144, 0.5],
    ),
    (
        lambda: layers.inverse_time_decay(0.3, 7, 0.7),
        [0.3, 0.27272728, 0.25, 0.23076925, 0.21428573, 0.2, 0.1875, 0.1764706],
    ),
    (
        lambda: layers.cosine_decay(0.3, 3, 7),
        [0.3, 0.3, 0.3, 0.28514534, 0.28514534, 0.28514534, 0.24352346, 0.24352346],
    ),
    (
        lambda: layers.natural_exp_decay(0.1, 3, 0.5),
        [
            float.fromhex(h)
            for h in (
                "0x1.99999ap-4",
                "0x1.5ab80cp-4",
                "0x1.257dc0p-4",
                "0x1.f0deb4p-5",
                "0x1.a49760p-5",
                "0x1.6405d8p-5",
                "0x1.2d5deap-5",
                "0x1.fe33f6p-6",
            )
        ],
    ),
]


@pytest.mark.parametrize(
    ("make", "expected"), EXACT, ids=["root", "power", "warm decay", "warm", "inverse", "cosine", "natural"]
)
def test_rates_are_fluids_to_the_last_bit(make: Callable[[], Any], expected: list[float]) -> None:
    main, startup, exe = fluid.Program(), fluid.Program(), fluid.Executor(fluid.CPUPlace())
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        rate = make()
        exe.run(startup)
        rates = [exe.run(main, fetch_list=[rate])[0][0] for _ in expected]
    np.testing.assert_array_equal(rates, np.array(expected, np.float32))


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (fluid.dygraph.PiecewiseDecay([1], [0.5, 0.25], begin=0), [0.5, 0.25]),
        (fluid.dygraph.PolynomialDecay(0.5, 4, 0.0), [0.5, 0.375]),
        (fluid.dygraph.NaturalExpDecay(0.5, 1, 0.0), [0.5, 0.5]),
    ],
)
def test_a_schedule_of_eager_mode_in_a_program_is_a_value_of_it(schedule: Any, rates: list[float]) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        steps = [schedule(), schedule()]
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        for _ in range(2):
            np.testing.assert_array_equal(np.ravel(exe.run(main, fetch_list=steps)), np.float32(rates))
