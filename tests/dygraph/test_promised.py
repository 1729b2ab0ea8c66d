"""Training steps that are known as a whole: whatever is done within them, and wherever, is seen."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.base.errors import EnforceNotMet
from fluidjax.eager.recorded.groups import Member
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences import blocks
from fluidjax.eager.whole import promised
from fluidjax.eager.whole.promised import Promise
from fluidjax.eager.whole.together import Together

dg = fluid.dygraph
pytestmark = pytest.mark.usefixtures("compiled_quickly")
PLACES = ("before", "call", "backward", "minimize", "clear", "end")
FROM = 10  # from there on something is done in every third step, at one place after the other
STEPS = FROM + 3 * len(PLACES)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each promised step that ran, and each that was recorded."""
    found: list[str] = []
    for name, owner in (("_run", Promise), ("record", promised)):
        function = getattr(owner, name)

        def noted(promise: Any, *given: Any, name: str = name, function: Any = function) -> None:
            found.append(name)
            function(promise, *given)

        monkeypatch.setattr(owner, name, noted)
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


class Logits(Net):
    """What it computes before the loss."""

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x))


class Training:
    """A net, its optimizer, and what is done at some places."""

    places, kind, start = PLACES, Net, FROM

    def __init__(self, does: Callable[[Training], Any], make: Any = None, clears: bool = True) -> None:
        self.net = self.kind()
        self.trained = [*self.net.a.parameters(), *self.net.b.parameters()]
        make = make or (lambda trained: fluid.optimizer.Momentum(0.05, 0.9, parameter_list=trained))
        self.optimizer = make(self.trained)
        self.place, self.does, self.clears = "", does, clears
        self.step, self.data = 0, np.zeros([0, 3], "float32")
        self.loss: Any = None
        self.out: Any = None
        self.seen: list[Any] = []
        self.held: list[Any] = []

    def at(self, place: str) -> None:
        turn, rest = divmod(self.step - self.start, 3)
        if turn >= 0 and not rest and self.places[turn % len(self.places)] == place:
            self.place = place
            self.seen.append(self.does(self))

    def forward(self) -> None:
        self.loss = self.net(dg.to_variable(self.data))
        self.at("call")

    def run(self, steps: int = STEPS, rows: tuple[int, ...] = (4,)) -> list[Any]:
        """All that was seen, the losses, and what training left."""
        for _ in range(steps):
            self.advance(rows)
        state = [value.numpy() for each in self.optimizer._accumulators.values() for value in each.values()]
        return [*self.seen, *state, *[p.numpy() for p in self.net.parameters()], *[p.gradient() for p in self.trained]]

    def advance(self, rows: tuple[int, ...] = (4,)) -> None:
        """One step."""
        self.data = np.sin(np.arange(3 * rows[self.step % len(rows)], dtype="float32") * (self.step + 1)).reshape(-1, 3)
        self.at("before")
        self.forward()
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
        self.step += 1


class Outside(Training):
    """The same with a loss that is computed outside of the net, and shares that nothing is computed from."""

    places = ("before", "call", "cost", "loss", "shares", "backward", "minimize", "clear", "end")
    kind = Logits

    def forward(self) -> None:
        self.label = (np.arange(len(self.data)).reshape(-1, 1) + self.step) % 2
        label = dg.to_variable(self.label)
        self.out = self.net(dg.to_variable(self.data))
        self.at("call")
        self.cost = layers.softmax_with_cross_entropy(self.out, label)
        self.at("cost")
        self.loss = layers.mean(self.cost * 2)
        self.at("loss")
        self.shares = layers.softmax(self.out)
        self.at("shares")


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
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


def look_at_loss(t: Training) -> Any:
    return None if t.loss is None else t.loss.numpy()


def look_at_gradient(t: Training) -> Any:
    return t.trained[1].gradient()


def look_at_parameter(t: Training) -> Any:
    return t.trained[2].numpy()


def set_parameter(t: Training) -> None:
    t.trained[0].set_value(np.full([3, 4], 0.25, "float32"))


def set_the_fixed_one(t: Training) -> None:
    t.net.fixed.bias.set_value(np.full([2], t.step / 20, "float32"))


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
    if t.place != ("call" if t.out is None else "loss"):
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
@pytest.mark.parametrize("kind", [Training, Outside])
def test_whatever_is_done_is_seen(kind: type[Training], does: Callable[[Training], Any], ran: list[str]) -> None:
    """At each place of a step; the same with each op run at once."""
    try:
        compare(*both(lambda: kind(does).run(FROM + 3 * len(kind.places))))
    finally:
        fluid.set_flags({"FLAGS_eager_layers": True})
    assert ran.count("_run") >= 2


def look_at_gradient_of_out(t: Training) -> Any:
    return None if t.out is None else t.out.gradient()


def look_at_out(t: Training) -> Any:
    return None if t.out is None else t.out.numpy()


def set_out(t: Training) -> Any:
    if t.out is not None:
        t.out.set_value(np.full(t.out.shape, 0.25, "float32"))


def stop_out(t: Training) -> None:
    if t.out is not None:
        t.out.stop_gradient = True


def write_into_labels(t: Any) -> None:
    if t.out is not None:
        t.label[...] = 1 - t.label


def hold_gradient(t: Training) -> Any:
    t.held.append(None if t.out is None else t.out._grad_ivar())
    return [None if g is None else g.numpy() for g in t.held]


def names_of_all(t: Any) -> Any:
    if t.out is None:
        return None
    g = t.out._grad_ivar()
    return [str(t.out.name), str(t.cost.name), str(t.loss.name), "" if g is None else str(g.name)]


def without_gradients(t: Training) -> Any:
    with dg.no_grad():
        found = layers.mean(t.net(dg.to_variable(t.data)))
    return found.numpy(), found.stop_gradient


AFTER = [
    look_at_gradient_of_out, look_at_out, set_out, stop_out, write_into_labels, hold_gradient, names_of_all,
    without_gradients,
]  # fmt: skip


@pytest.mark.parametrize("does", AFTER)
def test_whatever_is_done_to_what_is_computed_between_is_seen(does: Any, ran: list[str]) -> None:
    """Variables between the net and the loss."""
    compare(*both(lambda: Outside(does).run(FROM + 3 * len(Outside.places))))
    assert ran.count("_run") >= 2


def nothing(t: Training) -> None:
    pass


MAKE: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda trained: fluid.optimizer.SGD(0.05, parameter_list=trained),
    "adam": lambda trained: fluid.optimizer.Adam(0.001, parameter_list=trained),
    "clip": lambda trained: fluid.optimizer.Momentum(
        0.05, 0.9, parameter_list=trained, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)
    ),
    "decay": lambda trained: fluid.optimizer.Momentum(
        dg.NoamDecay(16, 10), 0.9, parameter_list=trained, regularization=fluid.regularizer.L2Decay(0.1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("clears", [True, False])
def test_optimizers(make: str, clears: bool, ran: list[str]) -> None:
    """Once it is known, each step runs as one; a rate that changes changes nothing of that."""
    compare(*both(lambda: Training(nothing, MAKE[make], clears).run()))
    assert ran.count("_run") >= 8 and "record" not in ran


@pytest.mark.parametrize("make", MAKE)
def test_a_loss_outside_of_the_net(make: str, ran: list[str]) -> None:
    """Its ops are part of the step."""

    def train() -> list[Any]:
        t = Outside(nothing, MAKE[make])
        found = t.run()
        return [*found, *[var.numpy() for var in (t.out, t.cost, t.shares)], t.out.gradient(), t.cost.gradient()]

    compare(*both(train))
    assert ran.count("_run") >= 8 and "record" not in ran


def test_batches_of_two_sizes(ran: list[str]) -> None:
    """The variables stay together from one block to the other."""
    compare(*both(lambda: Training(nothing).run(40, (4, 2))))
    assert ran.count("_run") >= 16 and "record" not in ran


def test_batches_of_two_sizes_whose_blocks_were_compiled_at_different_moments(ran: list[str]) -> None:
    """Somebody held the vectors while one of the blocks was compiled: both take the variables in one form."""

    def hold(t: Training) -> None:
        t.held = [p.detach() for p in t.trained] if t.step % 2 and t.step < FROM + 9 else []

    with dg.guard():
        t = Training(nothing, lambda trained: fluid.optimizer.Adam(0.01, parameter_list=trained))
        t.at = lambda place: hold(t) if place == "before" else None  # type: ignore[method-assign]
        for _ in range(FROM + 10):
            t.advance((4, 2))
        ran.clear()
        for _ in range(20):
            t.advance((4, 2))
    assert ran == ["_run"] * 20


def test_a_look_between_update_and_clearing(ran: list[str]) -> None:
    """The block returns the gradients too, which are zeroed afterwards."""

    def make() -> list[Any]:
        t = Training(nothing, clears=False)
        found = []
        for _ in range(4):
            found += t.run(5)
            t.net.clear_gradients()
            found += [p.gradient() for p in t.trained]
        return found

    compare(*both(make))
    assert ran.count("_run") >= 4


def test_two_nets_in_one_loop(ran: list[str]) -> None:
    """Each net's step is a batch of its own."""

    def make() -> list[Any]:
        one, other = Training(nothing), Training(nothing, MAKE["sgd"])
        for _ in range(16):
            one.advance()
            other.advance()
        return [*one.seen, *other.seen]

    compare(*both(make))
    assert ran.count("_run") >= 8


def test_dropout_draws_anew_in_each_step(ran: list[str]) -> None:
    """A seed of the program makes the draws those of steps that run op by op."""

    class Dropping(Net):
        def forward(self, x: Any) -> Any:
            return layers.reduce_mean(layers.square(self.b(layers.dropout(self.a(x), 0.5))))

    def make() -> list[Any]:
        fluid.default_main_program().random_seed = 7
        recorder._draws = 0
        t = Training(nothing)
        t.net = Dropping()
        t.trained = [*t.net.a.parameters(), *t.net.b.parameters()]
        t.optimizer = MAKE["sgd"](t.trained)
        return t.run()[:STEPS]

    compare(*both(make))
    assert ran.count("_run") >= 8


def test_what_shares_an_array_with_a_parameter() -> None:
    """A copy that was made before the parameters were kept together has its own numbers."""
    with dg.guard():
        t = Training(nothing)
        t.run(8)
        copies = [p.detach() for p in t.trained]
        before = [copy.numpy() for copy in copies]
        t.run(8)
        for copy, array, p in zip(copies, before, t.trained, strict=True):
            np.testing.assert_array_equal(copy.numpy(), array)
            assert (p.numpy() != array).any()


@pytest.mark.parametrize("name", ["call", "direct"])
def test_a_block_that_fails_leaves_no_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old ones went with it: each variable says so, and takes another."""
    with dg.guard():
        t = Training(nothing)
        t.run()
        kept = [p.numpy() for p in t.trained]
        t.run(4)
        for _ in range(4 if name == "direct" else 0):  # without a look: the step is promised
            t.advance()
        with monkeypatch.context() as patch:
            patch.setattr(blocks.Whole, name, lambda *args: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                t.run(1)
        for var in [t.loss, *t.trained]:
            with pytest.raises(EnforceNotMet, match="has no value"):
                var.numpy()
        for p, array in zip(t.trained, kept, strict=True):
            p.set_value(array)
        assert t.trained[0].numpy().tolist() == kept[0].tolist()


def test_shapes_and_names_part_nothing(ran: list[str]) -> None:
    """What they are is known without their values."""

    def look(t: Training) -> str:
        held = t.trained[0]._held
        if t.step > FROM:
            assert held.__class__ is Member and held.group.__class__ is Together and held.group.intact
        return str([[p.shape, p.dtype, p.name, p.stop_gradient] for p in [t.loss, *t.trained] if p is not None])

    with dg.guard():
        Training(look).run()
    assert "record" not in ran


def test_nets_that_are_gone_leave_nothing() -> None:
    """Variables and step do not refer to each other in a circle."""
    gc.collect()
    gc.disable()
    try:
        with dg.guard():
            t = Training(nothing)
            t.run()
            held = [weakref.ref(p) for p in [*t.trained, t.loss]]
            group = weakref.ref(t.trained[0]._held.group) if t.trained[0]._held.__class__ is Member else None
            t.net = t.optimizer = t.loss = None
            t.trained.clear()
            assert all(each() is None for each in held)
            assert group is None or group() is None
    finally:
        gc.enable()
