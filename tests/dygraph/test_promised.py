"""Training steps that are known as a whole: whatever is done within them, and wherever, is seen."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.base.errors import EnforceNotMet
from fluidjax.eager import blocks
from fluidjax.eager.kept import Member
from fluidjax.eager.pending import recorder
from fluidjax.eager.promised import Promise
from fluidjax.eager.together import Together

dg = fluid.dygraph
PLACES = ("before", "call", "backward", "minimize", "clear", "end")
FROM = 10  # from there on something is done in every third step, at one place after the other
STEPS = FROM + 3 * len(PLACES)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each promised step that ran, and each that was recorded."""
    found: list[str] = []
    for name in ("_run", "_record"):
        method = getattr(Promise, name)

        def noted(self: Any, name: str = name, method: Any = method) -> None:
            found.append(name)
            method(self)

        monkeypatch.setattr(Promise, name, noted)
    return found


class Net(dg.Layer):
    """Two layers trained, one that is not, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.fixed = dg.Linear(3, 4, act="tanh"), dg.Linear(4, 2), dg.Linear(3, 2)
        for n, p in enumerate(self.parameters()):
            p.set_value(np.linspace(-1, 1 - n / 10, int(np.prod(p.shape)), dtype="float32").reshape(p.shape))

    def forward(self, x: Any) -> Any:
        wanted = self.fixed(x)
        wanted.stop_gradient = True
        return layers.reduce_mean(layers.square(self.b(self.a(x)) - wanted))


class Training:
    """A net, its optimizer, and what is done at some places."""

    def __init__(self, does: Callable[[Training], Any], make: Any = None, clears: bool = True) -> None:
        self.net = Net()
        self.trained = [*self.net.a.parameters(), *self.net.b.parameters()]
        make = make or (lambda trained: fluid.optimizer.Adam(0.1, parameter_list=trained))
        self.optimizer = make(self.trained)
        self.place, self.does, self.clears = "", does, clears
        self.step, self.loss, self.data = 0, None, np.zeros([0, 3], "float32")
        self.seen: list[Any] = []
        self.held: list[Any] = []

    def at(self, place: str) -> None:
        turn, rest = divmod(self.step - FROM, 3)
        if turn >= 0 and not rest and PLACES[turn % len(PLACES)] == place:
            self.place = place
            self.seen.append(self.does(self))

    def run(self, steps: int = STEPS, rows: tuple[int, ...] = (4,)) -> list[Any]:
        """All that was seen, the losses, and what training left."""
        for self.step in range(steps):
            self.data = np.linspace(0, self.step + 1, 3 * rows[self.step % len(rows)], dtype="float32").reshape(-1, 3)
            self.at("before")
            self.loss: Any = self.net(dg.to_variable(self.data))
            self.at("call")
            self.loss.backward()
            self.at("backward")
            self.optimizer.minimize(self.loss)
            self.at("minimize")
            if self.clears:
                self.net.clear_gradients()
            self.at("clear")
            self.seen.append(self.loss.numpy())
            self.at("end")
            recorder.blocks.wait()
        state = [value.numpy() for value in self.optimizer.state_dict().values()]
        return [*self.seen, *state, *[p.numpy() for p in self.net.parameters()], *[p.gradient() for p in self.trained]]


def both(make: Callable[[], list[Any]]) -> tuple[list[Any], list[Any]]:
    """What a run gives, and what it gives if each op runs at once."""
    with dg.guard():
        found = flat(make())
    fluid.set_flags({"FLAGS_eager_blocks": False})
    try:
        with dg.guard():
            return found, flat(make())
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": True})


def flat(found: list[Any]) -> list[Any]:
    return [part for each in found for part in (each if isinstance(each, (list, tuple)) else [each])]


def compare(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if other is None or isinstance(other, (str, bool)):
            assert one == other
        else:
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)


def look_at_loss(t: Training) -> Any:
    return None if t.loss is None else t.loss.numpy()


def look_at_gradient(t: Training) -> Any:
    return t.trained[1].gradient()


def look_at_parameter(t: Training) -> Any:
    return t.trained[2].numpy()


def set_parameter(t: Training) -> None:
    t.trained[0].set_value(np.full([3, 4], 0.25, "float32"))


def set_the_fixed_one(t: Training) -> None:
    t.net.fixed.bias.set_value(np.full([2], float(t.step), "float32"))


def write_into_the_batch(t: Training) -> None:
    t.data[...] = 0.5


def compute(t: Training) -> Any:
    return (t.trained[1] * 2).numpy()


def compute_from_loss(t: Training) -> Any:
    if t.place == "before":
        return None
    double = t.loss * 2
    return double.numpy(), double.stop_gradient


def hold(t: Training) -> Any:
    t.held.append(t.loss)
    return np.float32([0 if x is None else x.numpy()[0] for x in t.held[:-1]])


def detach(t: Training) -> Any:
    t.held.append(t.trained[0].detach())
    return [x.numpy() for x in t.held]


def stop_a_parameter(t: Training) -> None:
    t.trained[1].stop_gradient = not t.trained[1].stop_gradient


def leave_out_a_parameter(t: Training) -> None:
    t.trained[3].trainable = not t.trained[3].trainable


def rate_of_a_parameter(t: Training) -> None:
    t.trained[3].optimize_attr["learning_rate"] = 0.5


def evaluate(t: Training) -> Any:
    t.net.eval()
    found = t.net(dg.to_variable(np.ones([2, 3], "float32")))
    t.net.train()
    return found.numpy()


def another_loss(t: Training) -> Any:
    loss = layers.reduce_sum(t.trained[0])
    loss.backward()
    return t.trained[0].gradient()


def another_backward(t: Training) -> Any:
    try:
        t.loss.backward()
    except (EnforceNotMet, AttributeError) as error:
        return error.__class__.__name__
    return t.trained[0].gradient()


def gradients_of(t: Training) -> Any:
    if t.place != "call":
        return None
    return dg.grad(t.loss, [t.trained[0]], retain_graph=True)[0].numpy()


def state(t: Training) -> Any:
    return [v.numpy() for v in t.optimizer.state_dict().values()]


def load(t: Training) -> None:
    t.optimizer.set_dict({name: v.numpy() * 0.5 for name, v in t.optimizer.state_dict().items()})
    t.net.set_dict({name: v.numpy() * 0.5 for name, v in t.net.state_dict().items()})


def clear_one(t: Training) -> None:
    t.trained[0].clear_gradient()


def clear_by_optimizer(t: Training) -> None:
    t.optimizer.clear_gradients()


def drop(t: Training) -> None:
    gc.collect()


def stop_the_loss(t: Training) -> None:
    if t.loss is not None:
        t.loss.stop_gradient = True


def flags_off(t: Training) -> Any:
    fluid.set_flags({"FLAGS_eager_layers": t.step % 2 == 0})


def names(t: Training) -> Any:
    return [str(dg.to_variable(t.data).name), str((t.trained[1] * 2).name), str(t.loss.name) if t.loss else ""]


DOES = [
    look_at_loss, look_at_gradient, look_at_parameter, set_parameter, set_the_fixed_one, write_into_the_batch, compute,
    compute_from_loss, hold, detach, stop_a_parameter, leave_out_a_parameter, rate_of_a_parameter, evaluate,
    another_loss, another_backward, gradients_of, state, load, clear_one, clear_by_optimizer, drop, stop_the_loss,
    flags_off, names,
]  # fmt: skip


@pytest.mark.parametrize("does", DOES)
def test_whatever_is_done_is_seen(does: Callable[[Training], Any], ran: list[str]) -> None:
    """At each place of a step; the same with each op run at once."""
    try:
        compare(*both(lambda: Training(does).run()))
    finally:
        fluid.set_flags({"FLAGS_eager_layers": True})
    assert ran.count("_run") >= 4
