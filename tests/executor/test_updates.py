"""Large tables are updated in blocks, in place; the numbers are those of an update as a whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from lowering.engine import updates

layers, optimizer = fluid.layers, fluid.optimizer
VOCABULARY, WIDTH = 1200, 10
IDS = np.array([[0], [3], [3], [VOCABULARY - 1]], np.int64)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_NARROW": (8192, 2), "_BLOCK": 2000, "processors": lambda: 1}.items():
        monkeypatch.setattr(updates, name, value)


class Trained:
    """A table trained for three steps.

    Attributes:
        state: what the scope holds in the end.
        text: the compiled step.
    """

    def __init__(self, made: Callable[[], Any], ids: Callable[[Any], Any] = lambda ids: ids, tied: bool = False):
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        main.random_seed = startup.random_seed = 5
        with fluid.unique_name.guard(), fluid.program_guard(main, startup):
            fed = ids(fluid.data("ids", [None, 1], "int64"))
            rows = fluid.embedding(fed, [VOCABULARY, WIDTH], param_attr="table")
            out = layers.fc(layers.reshape(rows, [-1, WIDTH]), WIDTH, act="tanh")
            if tied:
                out = layers.matmul(out, main.global_block().var("table"), transpose_y=True)
            made().minimize(layers.mean(layers.square(out)))
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup, scope=scope)
        for _ in range(3):
            executor.run(main, {"ids": IDS}, scope=scope)
        names = sorted(v.name for v in main.list_vars() if v.persistable)
        self.state = {name: np.array(scope.find_var(name).get_tensor()) for name in names}  # type: ignore[union-attr]
        (prepared,) = main.__dict__["_prepared_cache"].values()
        (compiled,) = prepared._whole.compiled._ready.values()
        self.text = compiled.executable.compiled.as_text()

    @property
    def loops(self) -> int:
        return len(re.findall(r"\bwhile\(", self.text))


MADE: dict[str, Callable[[], Any]] = {
    "adam": lambda: optimizer.Adam(0.1),
    "momentum": lambda: optimizer.Momentum(0.1, 0.9),
    "nesterov": lambda: optimizer.Momentum(0.1, 0.9, use_nesterov=True),
    "adadelta": lambda: optimizer.Adadelta(0.1),
    "rmsprop": lambda: optimizer.RMSProp(0.1, momentum=0.9, centered=True),
    "decayed": lambda: optimizer.Adam(0.1, regularization=fluid.regularizer.L2Decay(0.01)),
}


@pytest.mark.parametrize("name", MADE)
def test_the_numbers_are_those_of_an_update_as_a_whole(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    by_blocks = Trained(MADE[name])
    monkeypatch.setattr(updates, "_NARROW", (1 << 40, 2))
    as_a_whole = Trained(MADE[name])
    assert (by_blocks.loops, as_a_whole.loops) == (1, 0)
    assert not re.search(rf"\[{VOCABULARY},{WIDTH}\]\S* copy\(|\[{VOCABULARY * WIDTH}\]\S* copy\(", by_blocks.text)
    for variable, value in as_a_whole.state.items():
        np.testing.assert_allclose(by_blocks.state[variable], value, rtol=1e-6, atol=1e-8, err_msg=variable)


UNSUITED: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "one array is one loop": (lambda: optimizer.SGD(0.1), {}),
    "it needs norms of the whole": (lambda: optimizer.Lamb(0.1), {}),
    "an array depends on two others as they were": (lambda: optimizer.Ftrl(0.1), {}),
    "the backward pass multiplies with it": (MADE["adam"], {"tied": True}),
    "the step may have to give it back": (
        MADE["adam"],
        {"ids": lambda ids: layers.elementwise_mul(ids, layers.ones([1], "int64"))},
    ),
}


@pytest.mark.parametrize("reason", UNSUITED)
def test_what_gains_nothing_is_updated_as_a_whole(reason: str) -> None:
    made, options = UNSUITED[reason]
    assert Trained(made, **options).loops == 0


@pytest.mark.parametrize(("processors", "loops"), [(2, 1), (3, 0)])
def test_other_processors_would_share_a_whole_update(
    monkeypatch: pytest.MonkeyPatch, processors: int, loops: int
) -> None:
    monkeypatch.setattr(updates, "processors", lambda: processors)
    assert Trained(MADE["momentum"]).loops == loops
