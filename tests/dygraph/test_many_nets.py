"""Passes known from one point: many nets that are trained one after another, and passes of which none recurs."""

from __future__ import annotations

from typing import Any

import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.repeated import passes
from fluidjax.eager.repeated.passes import Passes
from tests.dygraph.afresh import nothing_remembered
from tests.dygraph.test_promised import Net, Training, nothing, ran

dg = fluid.dygraph
__all__ = ["ran"]


class Fits:
    """A known pass from one root."""

    def __init__(self, root: str) -> None:
        self.root = root

    def run(self, recorder: Any, root: Any, retain: bool) -> bool:
        return bool(root == self.root)


def test_what_did_not_come_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_PASSES", 2)
    known: Any = Passes()
    for root in "ab":
        known.add(Fits(root))
    assert known.run(recorder, "a", False)
    known.add(Fits("c"))
    assert [known.run(recorder, root, False) for root in "abc"] == [True, False, True]


def test_where_none_recurs_no_more_are_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_PASSES", 3)
    known: Any = Passes()
    assert [known.observe() for _ in range(5)] == [True, True, True, False, False]
    known.add(Fits("a"))
    for _ in range(6):
        assert known.run(recorder, "a", False)
    assert [known.observe() for _ in range(3)] == [True, False, False]


def test_each_net_is_known_in_its_turn(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are trained, though no more than two passes are remembered."""
    monkeypatch.setattr(passes, "_PASSES", 2)

    def net(width: int) -> type[Net]:
        class Own(Net):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.b = dg.Linear(3, width, act="tanh"), dg.Linear(width, 2)

            def forward(self, x: Any) -> Any:
                return layers.reduce_mean(layers.square(self.b(self.a(x))))

        return Own

    with nothing_remembered(), dg.guard():
        for width in range(2, 7):
            kind = type("Own", (Training,), {"kind": net(width)})
            before = ran.count("_run")
            kind(nothing).run(16)
            assert ran.count("_run") - before >= 4
