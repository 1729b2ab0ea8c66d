"""Repeated calls of layers that draw, keep statistics, take any arguments or extend other layers."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.dygraph._known import calls
from fluidjax.eager.recorded.pending import recorder
from tests.conftest import seed_of

dg = fluid.dygraph


@pytest.fixture(autouse=True)
def bit_for_bit() -> Iterator[None]:
    """Blocks compiled in between would change how numbers are rounded."""
    fluid.set_flags({"FLAGS_cpu_deterministic": True})
    yield
    fluid.set_flags({"FLAGS_cpu_deterministic": False, "FLAGS_eager_layers": True})


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the layers whose calls were repeated without their Python."""
    found: list[str] = []
    again = calls.again

    def noted(layer: Any, *given: Any) -> Any:
        table = layer.__dict__.get(calls.TABLE) or {}
        before = {key: entry.seen for key, entry in table.items()}
        results = again(layer, *given)
        if results is not None and {key: entry.seen for key, entry in table.items()} == before:
            found.append(type(layer).__name__)
        return results

    monkeypatch.setattr(calls, "again", noted)
    return found


class Base(dg.Layer):
    """A convolutional network of what such scripts hold."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.conv = dg.Conv2D(1, 2, 3, padding=1, act="relu")
        self.norm = dg.BatchNorm(2, act="tanh", **settings)
        self.pool, self.drop, self.top = dg.Pool2D(2, "avg", 2), dg.Dropout(0.4), dg.Linear(8, 3)
        draw = np.random.RandomState(seed_of("weights"))
        for p in self.parameters():
            p.set_value(draw.uniform(0.1, 0.5, p.shape).astype("float32"))

    def forward(self, x: Any) -> Any:
        return self.tail(self.norm(self.conv(x)))

    def tail(self, x: Any) -> Any:
        return self.top(self.drop(layers.reshape(self.pool(x), [-1, 8])))


def images(k: int, rows: int = 2) -> Any:
    return dg.to_variable((np.arange(rows * 16, dtype="float32").reshape(rows, 1, 4, 4) * (k % 5 + 1) % 7) / 5)


Change = Callable[[Any], None]


def trained(make: Callable[[], Any], change: Change | None, on: bool, steps: int = 12) -> list[Any]:
    """What steps leave: losses, gradients, statistics, names. The change comes in the middle."""
    fluid.set_flags({"FLAGS_eager_layers": on})
    recorder._draws = 0  # draws without a seed are those of the process's own
    found: list[Any] = []
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program()), dg.guard():
        net = make()
        optimizer = fluid.optimizer.Momentum(0.01, 0.9, parameter_list=net.parameters())
        for k in range(steps):
            if k == 8 and change is not None:
                change(net)
            out = net(images(k))
            loss = layers.mean(layers.square(out))
            loss.backward()
            optimizer.minimize(loss)
            gradients = [None if p.gradient() is None else p.gradient().tolist() for p in net.parameters()]
            net.clear_gradients()
            state = {name: p.numpy().tolist() for name, p in net.state_dict().items()}
            found += [loss.numpy().tolist(), out.name, out.stop_gradient, gradients, state]
        found += [recorder._draws, layers.relu(images(0)).name, layers.elu(images(0)).name]
        found.append(dict(fluid.unique_name.generator.ids))
    return found


def agree(make: Callable[[], Any], change: Change | None, repeated: list[str], least: int = 6) -> None:
    expected = trained(make, change, on=False)
    assert not repeated
    assert trained(make, change, on=True) == expected
    assert len(repeated) >= least, repeated


def statistics(self: Any, x: Any) -> Any:
    y = self.norm(self.conv(x))
    return self.tail(y * self.norm._variance[0] + self.norm._mean[1])


def twice(self: Any, x: Any) -> Any:
    """The second one reads the statistics that the first one leaves."""
    return self.tail(self.norm(self.norm(self.conv(x))))


def dropped(self: Any, x: Any) -> Any:
    y = layers.dropout(self.conv(x), 0.3, dropout_implementation="upscale_in_train")
    return self.tail(self.norm(y)) + layers.dropout(self.tail(y), 0.5, seed=3)


def of_any(self: Any, *inputs: Any, **settings: Any) -> Any:
    (x,) = inputs
    settings["keep"] = settings.get("keep", True)
    return self.both(*inputs, **settings) if len(inputs) == 1 and x.shape[0] > 1 else x


def of_lambdas(self: Any, x: Any, act: Any = lambda v: layers.relu(v) * 2.0) -> Any:
    return self.tail(act(self.conv(x)))


def both(self: Any, *inputs: Any, scale: float = 2.0, **settings: Any) -> Any:
    y = self.norm(self.conv(inputs[0])) * scale
    return self.tail(y) * settings.pop("factor", 1.0) if settings["keep"] else y


class Extended(Base):
    """Calls what it overrides, both ways."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) * 2.0

    def tail(self, x: Any) -> Any:
        return layers.tanh(super(Extended, self).tail(x))  # noqa: UP008 (scripts of Python 2 write it)


class Farther(Extended):
    """Two above it."""

    def tail(self, x: Any) -> Any:
        return super().tail(layers.relu(x))


FORWARDS: dict[str, type[Base]] = {
    f.__name__: type("Net", (Base,), {"forward": f, "both": both}) for f in (statistics, twice, dropped, of_any)
} | {"plain": Base, "extended": Extended, "farther": Farther}


@pytest.mark.parametrize("name", FORWARDS)
def test_it_is_repeated(name: str, repeated: list[str]) -> None:
    agree(FORWARDS[name], None, repeated)


@pytest.mark.parametrize("settings", [{"use_global_stats": True, "param_attr": fluid.ParamAttr()}, {"momentum": 0.5}])
def test_settings_of_a_batch_norm(settings: dict[str, Any], repeated: list[str]) -> None:
    agree(lambda: Base(**settings), None, repeated)


def test_means_without_gradients(repeated: list[str]) -> None:
    """Statistics move under no_grad and while a layer is evaluated, as Fluid's do."""

    def run(on: bool) -> list[Any]:
        fluid.set_flags({"FLAGS_eager_layers": on})
        found = []
        with fluid.unique_name.guard(), dg.guard():
            net = Base()
            for k in range(24):
                if k == 12:
                    net.eval()
                with dg.no_grad():
                    out = net(images(k)) if k < 12 else net(images(k, 3))
                found.append([net.norm._mean.numpy().tolist(), net.norm._variance.numpy().tolist(), out.stop_gradient])
            found.append(out.numpy().tolist())
        return found

    expected = run(False)
    assert run(True) == expected and len(repeated) >= 10


def evaluated(net: Any) -> None:
    net.eval()
    net.drop.train()


def seeded(net: Any) -> None:
    fluid.default_main_program().random_seed = 9


def other_parent(net: Any) -> None:
    Middle.__bases__ = (Other,)


class Other(Base):
    def tail(self, x: Any) -> Any:
        return layers.relu(Base.tail(self, x))


class Middle(Base):
    pass


class Top(Middle):
    def tail(self, x: Any) -> Any:
        return super().tail(x) * 3.0


CHANGES: dict[str, Change] = {
    "evaluation": lambda net: net.eval(),
    "evaluation of a part": lambda net: setattr(net.norm, "training", False),
    "evaluation of the rest": evaluated,
    "the statistics": lambda net: net.norm._mean.set_value(np.array([0.5, 0.25], "float32")),
    "all that is saved": lambda net: net.set_dict({name: p.numpy() * 0.5 for name, p in net.state_dict().items()}),
    "a statistic that takes gradients": lambda net: setattr(net.norm._variance, "stop_gradient", False),
    "the momentum": lambda net: net.norm._attrs.update(momentum=0.1),
    "the probability": lambda net: setattr(net.drop, "_dropout_prob", 0.9),
    "the program's seed": seeded,
    "the layer's seed": lambda net: setattr(net.drop, "_seed", 4),
    "another norm": lambda net: setattr(net, "norm", dg.BatchNorm(2)),
    "the classes that a class extends": other_parent,
    "a function of one of them": lambda net: setattr(Middle, "tail", Other.tail),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen(what: str, repeated: list[str]) -> None:
    def changed(net: Any) -> None:
        repeated.append("before") if repeated else None
        CHANGES[what](net)

    results = []
    for on in (False, True):
        try:
            results.append(trained(Top, changed, on))
        finally:
            Middle.__bases__ = (Base,)
            if "tail" in Middle.__dict__:
                del Middle.tail
        assert on or not repeated
    assert results[0] == results[1]
    assert "before" in repeated


def test_statistics_that_were_loaded_share_nothing(repeated: list[str]) -> None:
    """A call that is repeated replaces values, so what was read before stays."""
    with dg.guard():
        net, kept = Base(), []
        for k in range(12):
            net(images(k))
            kept.append((net.norm._mean.numpy(), net.norm._mean.detach()))
        assert len(repeated) >= 5
        assert len({each.tobytes() for each, _ in kept}) == 12
        assert all((copy.numpy() == numbers).all() for numbers, copy in kept)


USES: dict[str, Callable[[Any, Any, Any], list[Any]]] = {
    "two passes": lambda net, x, out: [layers.mean(out).backward(retain_graph=True), layers.reduce_sum(out).backward()],
    "towards the input": lambda net, x, out: dg.grad(layers.mean(out * out), [x, net.norm.weight]),
    "towards the output": lambda net, x, out: dg.grad(layers.mean(out * out), [out], retain_graph=True),
    "statistics afterwards": lambda net, x, out: [layers.mean(out * net.norm._mean[0]).backward()],
    "no pass": lambda net, x, out: [],
}


@pytest.mark.parametrize("name", USES)
def test_outputs_are_used_as_ever(name: str, repeated: list[str]) -> None:
    def run(on: bool) -> list[Any]:
        fluid.set_flags({"FLAGS_eager_layers": on})
        recorder._draws, found = 0, []
        with fluid.unique_name.guard(), dg.guard():
            net = FORWARDS["twice"]()
            for k in range(11):
                x = images(k)
                x.stop_gradient = False
                used = USES[name](net, x, net(x))
                shown = [*[each for each in used if each is not None], *net.state_dict().values()]
                found.append([each.numpy().tolist() for each in shown])
                found.append([None if p.gradient() is None else p.gradient().tolist() for p in [x, *net.parameters()]])
        return found

    expected = run(False)
    assert run(True) == expected and len(repeated) >= 4


def test_an_interrupt_between_two_calls_loses_no_statistics(repeated: list[str]) -> None:
    """Statistics belong to the call that left them, also if what came after it was stopped."""
    with dg.guard():
        net = Base()
        for k in range(8):
            net(images(k)).numpy()
        assert repeated
        before = net.norm._mean.numpy()

        def stop(x: Any) -> Any:
            raise KeyboardInterrupt

        net.top.forward = stop
        with pytest.raises(KeyboardInterrupt):
            net(images(9))
        between = net.norm._mean.numpy()
        del net.top.forward
        net(images(9))
        assert not (between == before).all() and not (net.norm._mean.numpy() == between).all()


def test_a_lambda_in_the_line_of_a_def_is_not_the_def(repeated: list[str]) -> None:
    """Its source is not known, so what calls it runs as ever."""
    make = type("Net", (Base,), {"forward": of_lambdas})
    assert trained(make, None, False) == trained(make, None, True) and "Net" not in repeated


EDITED = """
class Edited(Base):
    def forward(self, x):
        factor = {factor}
        return self.tail(self.conv(x)) * factor
"""


def test_a_file_that_is_edited_while_it_runs_runs_as_it_was(tmp_path: Path, repeated: list[str]) -> None:
    """Python has read it; the lines that stand there now are another function's."""
    path, space = tmp_path / "net.py", {"Base": Base}
    path.write_text(EDITED.format(factor=2.0))
    exec(compile(path.read_text(), path, "exec"), space)  # noqa: S102
    expected = trained(space["Edited"], None, on=False)
    path.write_text(EDITED.format(factor=34.0))
    assert trained(space["Edited"], None, on=True) == expected and "Edited" not in repeated
    path.write_text(EDITED.format(factor=2.0))
    linecache.checkcache(str(path))
    agree(space["Edited"], None, [], least=0)
    assert "Edited" in repeated


def printed(self: Any, x: Any) -> Any:
    handle = super
    return handle(type(self), self).forward(x)


def test_super_by_another_name_runs_as_ever(repeated: list[str]) -> None:
    make = type("Net", (Base,), {"forward": printed})
    assert trained(make, None, False) == trained(make, None, True) and not repeated
