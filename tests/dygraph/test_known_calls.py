"""Calls of layers that are repeated without their Python: everything is as when it runs."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.dygraph._known import calls
from fluidjax.eager.recorded.pending import recorder

dg = fluid.dygraph
OFFSET = 1.0  # a global that a forward reads
SEEN: list[Any] = []  # what forwards leave outside


@pytest.fixture(autouse=True)
def bit_for_bit() -> Iterator[None]:
    """Blocks compiled in between would change how numbers are rounded."""
    fluid.set_flags({"FLAGS_cpu_deterministic": True})
    yield
    fluid.set_flags({"FLAGS_cpu_deterministic": False})


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each call that was repeated without its Python."""
    found: list[int] = []
    run = calls.Known.run

    def noted(self: Any, *given: Any) -> Any:
        results = run(self, *given)
        found.extend([1] * (results is not None))
        return results

    monkeypatch.setattr(calls.Known, "run", noted)
    return found


@pytest.fixture
def globals_restored() -> Iterator[None]:
    global OFFSET
    yield
    OFFSET = 1.0
    SEEN.clear()


def weights(shape: list[int]) -> Any:
    numbers = (np.arange(int(np.prod(shape)), dtype="float32").reshape(shape) % 7 - 3) / 10
    return fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(numbers))


def linear(ins: int, outs: int, act: str | None = None) -> Any:
    return dg.Linear(ins, outs, weights([ins, outs]), weights([outs]), act=act)


def batch(k: int, rows: int = 2, size: int = 3) -> Any:
    return dg.to_variable((np.arange(rows * size, dtype="float32").reshape(rows, size) + k) / 5)


class Base(dg.Layer):
    """A layer with what scenarios change."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = linear(3, 4, "tanh"), linear(4, 3)
        self.parts = dg.LayerList([linear(3, 3, "sigmoid")])
        self.named = dg.Sequential(("1", self.a), ("second", self.b))
        self.scale, self.sizes, self.twice, self.count = 2.0, [1, 1], False, 0
        self.table = {"shift": 1.0}

    def forward(self, x: Any) -> Any:
        return self.tail(self.b(self.a(x)))

    def tail(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        x = x * self.scale + OFFSET + self.table["shift"]
        if self.twice:
            x = x + x
        for size in self.sizes:
            x = x * float(size)
        return layers.reduce_sum(layers.tanh(x), dim=1)


Change = Callable[[Any], None]


def trained(make: Callable[[], Any], change: Change | None, on: bool, steps: int = 14) -> list[Any]:
    """What steps leave: losses, gradients, names. The change comes in the middle."""
    global OFFSET
    OFFSET = 1.0
    SEEN.clear()
    fluid.set_flags({"FLAGS_eager_layers": on})
    found: list[Any] = []
    try:
        with fluid.unique_name.guard(), dg.guard():
            net = make()
            optimizer = fluid.optimizer.SGD(0.01, parameter_list=net.parameters())
            for k in range(steps):
                if k == 8 and change is not None:
                    change(net)
                out = net(batch(k))
                loss = layers.mean(out)
                loss.backward()
                optimizer.minimize(loss)
                gradients = [p.gradient() for p in net.parameters()]
                net.clear_gradients()
                found.append((loss.numpy().tolist(), out.name, out.stop_gradient, out.numpy().tolist()))
                found.append([None if g is None else g.tolist() for g in gradients])
            found += [list(SEEN), getattr(net, "count", 0), layers.relu(batch(0)).name, layers.elu(batch(0)).name]
            found.append(dict(fluid.unique_name.generator.ids))
    finally:
        fluid.set_flags({"FLAGS_eager_layers": True})
        restore()
    return found


_undo: list[Callable[[], None]] = []


def restore() -> None:
    while _undo:
        _undo.pop()()


def put(owner: Any, name: str, value: Any) -> None:
    """Set an attribute until the scenario ends."""
    before = getattr(owner, name)
    _undo.append(lambda: setattr(owner, name, before))
    setattr(owner, name, value)


def rebind(value: float) -> Change:
    def change(net: Any) -> None:
        global OFFSET
        OFFSET = value

    return change


def add_hook(net: Any) -> None:
    net.register_forward_post_hook(lambda layer, inputs, outputs: outputs * 2.0)


def add_hook_below(net: Any) -> None:
    net.parts[0].register_forward_pre_hook(lambda layer, inputs: (inputs[0] * 3.0,))


def freeze(net: Any) -> None:
    net.a.weight.stop_gradient = True


def replace_weight(net: Any) -> None:
    net.b.bias.set_value(np.ones([3], "float32"))


def load(net: Any) -> None:
    net.set_dict({name: p.numpy() * 0.5 for name, p in net.state_dict().items()})


def share(net: Any) -> None:
    net.parts[0].weight = net.parts[0].bias


def other_weight(net: Any) -> None:
    net.a.weight = linear(3, 4).weight


def without_bias(net: Any) -> None:
    net.b.bias = None


def wrong_shape(net: Any) -> None:
    net.parts.append(linear(3, 5))


def patched(net: Any) -> None:
    original = layers.tanh
    put(layers, "tanh", lambda x: original(x) * 2.0)


def patched_operator(net: Any) -> None:
    kind = fluid.core.VarBase
    original = kind.__mul__
    put(kind, "__mul__", lambda self, other: original(self, 2.0 * other))


def patched_method(net: Any) -> None:
    original = Base.tail
    put(Base, "tail", lambda self, x: original(self, x) * 2.0)


def own_method(net: Any) -> None:
    net.tail = lambda x: layers.relu(x)


def own_forward(net: Any) -> None:
    net.parts[0].forward = lambda x: layers.relu(x)


def other_code(net: Any) -> None:
    def tail(self: Any, x: Any) -> Any:
        return layers.reduce_sum(x, dim=1)

    put(Base.tail, "__code__", tail.__code__)


def other_class(net: Any) -> None:
    class Other(Base):
        def tail(self, x: Any) -> Any:
            return layers.reduce_max(x, dim=1)

    net.__class__ = Other


CHANGES: dict[str, Change | None] = {
    "nothing": None,
    "an attribute": lambda net: setattr(net, "scale", 3.0),
    "an attribute of another type": lambda net: setattr(net, "twice", 1),
    "a condition": lambda net: setattr(net, "twice", True),
    "a list": lambda net: net.sizes.append(3),
    "an element": lambda net: net.sizes.__setitem__(0, 5),
    "a dict": lambda net: net.table.update(shift=4.0),
    "another list": lambda net: setattr(net, "sizes", [2]),
    "a sublayer": lambda net: setattr(net, "b", linear(4, 3, "tanh")),
    "a sublayer in a list": lambda net: net.parts.append(linear(3, 3)),
    "an entry among the sublayers": lambda net: net._sub_layers.update(b=linear(4, 3, "relu")),
    "an activation": lambda net: setattr(net.a, "_act", "relu"),
    "an attribute in the instance's dict": lambda net: net.__dict__.update(scale=7.0),
    "a global": rebind(2.5),
    "a hook": add_hook,
    "a hook of a sublayer": add_hook_below,
    "a parameter that needs no gradient": freeze,
    "numbers of a parameter": replace_weight,
    "all numbers": load,
    "another parameter": other_weight,
    "no bias": without_bias,
    "a function of fluid.layers": patched,
    "an operator": patched_operator,
    "a method of the class": patched_method,
    "a method of the object": own_method,
    "a forward of a sublayer": own_forward,
    "the code of a function": other_code,
    "the class": other_class,
    "test mode": lambda net: net.eval() or net.train(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen(what: str, repeated: list[int], globals_restored: None) -> None:
    """Between two calls; Fluid's result is that of running the forward."""
    expected = trained(Base, CHANGES[what], on=False)
    assert not repeated
    assert trained(Base, CHANGES[what], on=True) == expected
    assert len(repeated) >= 2, "nothing was repeated before the change"


# Forwards that do more than record ops: none of them is repeated.


def printing(self: Any, x: Any) -> Any:
    print("here")
    return self.tail(x)


def counting(self: Any, x: Any) -> Any:
    self.count += 1
    return self.tail(x)


def remembering(self: Any, x: Any) -> Any:
    SEEN.append(1)
    return self.tail(x)


def remembering_below(self: Any, x: Any) -> Any:
    self.table["calls"] = self.table.get("calls", 0) + 1
    SEEN[:] = [self.table["calls"]]
    return self.tail(x)


def drawing(self: Any, x: Any) -> Any:
    SEEN.append(DRAWS.uniform())
    return self.tail(x) * float(SEEN[-1])


def in_time(self: Any, x: Any) -> Any:
    SEEN.append(time.monotonic() > 0)
    return self.tail(x) * (2.0 if time.monotonic() > 0 else 1.0)


def of_numbers(self: Any, x: Any) -> Any:
    return self.tail(x) * (2.0 if x.numpy().sum() > 3 else 1.0)


def of_a_condition(self: Any, x: Any) -> Any:
    return self.tail(x) * 2.0 if layers.reduce_sum(x) > 3.0 else self.tail(x)


def default_list(self: Any, x: Any, calls: list[int] = []) -> Any:  # noqa: B006
    calls.append(1)
    SEEN[:] = [len(calls) - sum(calls)]
    return self.tail(x) * (1.0 + len(calls) * 0.0)


def trying(self: Any, x: Any) -> Any:
    try:
        return self.tail(x)
    finally:
        SEEN.append(1)


def without_gradient(self: Any, x: Any) -> Any:
    with dg.no_grad():
        y = self.tail(x)
    return y + self.tail(x)


def generated(self: Any, x: Any) -> Any:
    return sum((self.tail(x) for _ in range(2)), 0.0)


def stopping(self: Any, x: Any) -> Any:
    self.b.weight.stop_gradient = True
    return self.tail(x)


def in_place(self: Any, x: Any) -> Any:
    y = self.tail(x)
    layers.assign(y * 2.0, y)
    return y


def named(self: Any, x: Any) -> Any:
    SEEN.append(x.name)
    return self.tail(x)


def recursive(self: Any, x: Any, depth: int = 2) -> Any:
    return self.tail(x) if depth == 0 else self.forward(x, depth - 1) * 1.5


def with_closure() -> Any:
    factor = 1.0

    def forward(self: Any, x: Any) -> Any:
        nonlocal factor
        factor += 0.5
        return self.tail(x) * factor

    return forward


DRAWS = np.random.RandomState(0)
IMPURE = {
    f.__name__: f
    for f in (
        printing, counting, remembering, remembering_below, drawing, in_time, of_numbers, of_a_condition, default_list,
        trying, without_gradient, generated, stopping, in_place, named, with_closure(),
    )
}  # fmt: skip


@pytest.mark.parametrize("name", IMPURE)
def test_what_else_a_forward_does_is_done_each_time(
    name: str, repeated: list[int], globals_restored: None, capsys: pytest.CaptureFixture[str]
) -> None:
    results = []
    for on in (False, True):
        DRAWS.seed(1)
        default_list.__defaults__[0].clear()
        function = with_closure() if name == "forward" else IMPURE[name]
        make = type("Net", (Base,), {"forward": function})
        results.append((trained(make, None, on), capsys.readouterr().out))
    assert results[0] == results[1]
    assert not repeated


# Forwards that are repeated.


def comprehended(self: Any, x: Any) -> Any:
    parts = [part(x) for part in self.parts] + [x]
    parts.append(layers.relu(x))
    return layers.concat(parts, 1)


def of_shapes(self: Any, x: Any) -> Any:
    rows, size = x.shape
    y = layers.reshape(self.tail(x), [rows, -1])
    return y[0:1] if size > 100 else y[:, 0] * float(size)


def branching(self: Any, x: Any) -> Any:
    y = getattr(self, "{}".format("a"))(x)
    y = self.b(y) if self.count == 0 and not self.twice else x
    y.stop_gradient = False
    return {"y": self.tail(y)}["y"] - max(1, 2)


def stopped(self: Any, x: Any) -> Any:
    y = self.tail(x)
    y.stop_gradient = True
    return y * 2.0 + self.tail(x)


def split(self: Any, x: Any) -> Any:
    i, j, f = layers.split(self.b(self.a(x)), 3, dim=-1)
    state: Any = [None, None]
    state[0] = i * layers.sigmoid(j)
    state[1] = layers.concat([state[0], i], 1)
    return layers.softmax(state[1])


def helped(self: Any, x: Any) -> Any:
    return layers.elu(layers.cast(layers.elu(self.tail(x)), "float32"))


def indexed(self: Any, x: Any) -> Any:
    return self.tail(self.named["second"](self.named["1"](self.parts["0"](x))) + self.parts[0](x))


PURE = {f.__name__: f for f in (comprehended, of_shapes, branching, stopped, split, helped, recursive, indexed)}


@pytest.mark.parametrize("name", PURE)
def test_ordinary_python_is_repeated(name: str, repeated: list[int], globals_restored: None) -> None:
    make = type("Net", (Base,), {"forward": PURE[name]})
    assert trained(make, None, False) == trained(make, None, True)
    assert len(repeated) >= 8


def both(run: Callable[[], Any]) -> Any:
    """The same with repeated calls and without; returns it."""
    found = []
    for on in (False, True):
        fluid.set_flags({"FLAGS_eager_layers": on})
        try:
            with fluid.unique_name.guard(), dg.guard():
                found.append(run())
        finally:
            fluid.set_flags({"FLAGS_eager_layers": True})
    assert found[0] == found[1]
    return found[1]


def settled(step: Callable[[int], Any], steps: int = 12) -> None:
    for k in range(steps):
        step(k)


def test_shapes_and_flags_of_arguments_alternate(repeated: list[int]) -> None:
    def run() -> list[Any]:
        net, found = Base(), []
        for k in range(36):
            x = batch(k, rows=2 + k % 2)
            x.stop_gradient = k % 3 != 0
            loss = layers.mean(net(x))
            loss.backward()
            found.append((loss.numpy().tolist(), None if x.gradient() is None else x.gradient().tolist()))
        return found

    both(run)
    assert len(repeated) >= 6


def test_no_grad_comes_and_goes(repeated: list[int]) -> None:
    def run() -> list[Any]:
        net, found = Base(), []
        for k in range(24):
            if k % 2:
                with dg.no_grad():
                    found.append((net(batch(k)).stop_gradient, net.a.weight.gradient() is None))
                continue
            loss = layers.mean(net(batch(k)))
            loss.backward()
            found.append((loss.stop_gradient, net.a.weight.gradient().tolist()))
        return found

    both(run)
    assert len(repeated) >= 10


class Two(dg.Layer):
    """Two outputs, the second of which is of a split that the first needs too."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = linear(3, 4, "tanh"), linear(4, 6)

    def forward(self, x: Any) -> Any:
        left, right = layers.split(self.b(self.a(x)), 2, dim=-1)
        return [left, (right, layers.tanh(left * 2.0))] if self.full_name() == "" else (layers.tanh(left), right)


class Pair(Two):
    """The same without a call that is not known."""

    def forward(self, x: Any) -> Any:
        left, right = layers.split(self.b(self.a(x)), 2, dim=-1)
        return [layers.tanh(left), (right, layers.tanh(left * 2.0))]


USES: dict[str, Callable[[Any, Any, Any], list[Any]]] = {}


def use(function: Callable[[Any, Any, Any], list[Any]]) -> Callable[[Any, Any, Any], list[Any]]:
    USES[function.__name__] = function
    return function


@use
def backward_of_one_output(net: Any, x: Any, out: Any) -> list[Any]:
    layers.mean(out[0]).backward()
    return [net.a.weight.gradient(), out[1][0].gradient(), out[0].gradient(), out[1][1].gradient()]


@use
def values_before_backward(net: Any, x: Any, out: Any) -> list[Any]:
    before = out[0].numpy()
    layers.mean(out[0] + out[1][0]).backward()
    return [before, net.a.weight.gradient(), x.gradient()]


@use
def backward_twice(net: Any, x: Any, out: Any) -> list[Any]:
    loss = layers.mean(out[0] + out[1][1])
    loss.backward(retain_graph=True)
    first = net.a.weight.gradient()
    loss.backward()
    second = net.b.weight.gradient()
    loss.backward()
    return [first, second, net.a.weight.gradient()]


@use
def another_root(net: Any, x: Any, out: Any) -> list[Any]:
    layers.mean(out[0]).backward()
    try:
        layers.mean(out[1][1]).backward()
    except fluid.core.EnforceNotMet as error:
        return [np.array("freed" in str(error)), net.a.weight.gradient()]
    return [net.a.weight.gradient()]


@use
def another_root_after_a_retained_pass(net: Any, x: Any, out: Any) -> list[Any]:
    layers.mean(out[0]).backward(retain_graph=True)
    layers.mean(out[1][1]).backward()
    return [net.a.weight.gradient()]


@use
def partial_gradients(net: Any, x: Any, out: Any) -> list[Any]:
    found = dg.grad(layers.mean(out[0]), [x, net.a.weight], retain_graph=True)
    layers.mean(out[1][1]).backward()
    return [*[g.numpy() for g in found], net.a.weight.gradient()]


@use
def gradient_of_an_output(net: Any, x: Any, out: Any) -> list[Any]:
    loss = layers.mean(out[0] * out[1][0])
    return [g.numpy() for g in dg.grad(loss, [out[0], out[1][0]])]


@use
def second_derivatives(net: Any, x: Any, out: Any) -> list[Any]:
    (first,) = dg.grad(layers.reduce_sum(out[0] * out[0]), [x], create_graph=True)
    layers.reduce_sum(first * first).backward()
    return [first.numpy(), net.a.weight.gradient(), x.gradient()]


@use
def outputs_set(net: Any, x: Any, out: Any) -> list[Any]:
    out[0].set_value(np.full(out[0].shape, 0.25, "float32"))
    layers.mean(out[0] * out[1][0]).backward()
    return [net.a.weight.gradient(), out[0].numpy()]


@use
def outputs_stopped(net: Any, x: Any, out: Any) -> list[Any]:
    out[0].stop_gradient = True
    layers.mean(out[0] * out[1][0]).backward()
    return [net.a.weight.gradient(), net.b.weight.gradient(), out[0].gradient()]


@use
def parameters_set_before_backward(net: Any, x: Any, out: Any) -> list[Any]:
    before = net.b.weight.numpy()
    net.b.weight.set_value(before * 2.0)
    layers.mean(out[0] * out[1][0]).backward()
    net.b.weight.set_value(before)
    return [net.a.weight.gradient()]


@use
def parameters_stopped_before_backward(net: Any, x: Any, out: Any) -> list[Any]:
    net.a.weight.stop_gradient = True
    layers.mean(out[0] * out[1][0]).backward()
    net.a.weight.stop_gradient = False
    return [net.a.weight.gradient(), net.b.weight.gradient()]


@use
def calls_of_calls(net: Any, x: Any, out: Any) -> list[Any]:
    again = net(layers.concat([out[0], out[1][0]], 1)[:, 0:3])
    layers.mean(again[0] + out[1][1]).backward()
    return [net.a.weight.gradient(), x.gradient(), again[1][0].numpy()]


@use
def nothing_but_values(net: Any, x: Any, out: Any) -> list[Any]:
    return [out[0].numpy(), out[1][1].numpy(), np.array(out[1][0].shape)]


@pytest.mark.parametrize("name", USES)
def test_outputs_are_used_as_ever(name: str, repeated: list[int]) -> None:
    """Backward passes of all kinds, of which a repeated call knows no more than that they come."""

    def run() -> list[Any]:
        net, found = Pair(), []
        for k in range(10):
            x = batch(k)
            x.stop_gradient = False
            used = USES[name](net, x, net(x))
            found.append([None if u is None else np.asarray(u).tolist() for u in used])
            for p in net.parameters():
                p._grad = None
        return found

    both(run)
    assert len(repeated) >= 4


def test_uses_alternate(repeated: list[int]) -> None:
    """A pass that is known after a call is not taken for another."""

    def run() -> list[Any]:
        net, found = Pair(), []
        for k in range(6 * len(USES)):
            x = batch(k % 3)
            x.stop_gradient = False
            used = list(USES.values())[k % len(USES)](net, x, net(x))
            found.append([None if u is None else np.asarray(u).tolist() for u in used])
            for p in net.parameters():
                p._grad = None
        return found

    both(run)
    assert len(repeated) >= 20


def test_lists_that_are_returned_are_new_each_time() -> None:
    with dg.guard():
        net = Pair()
        results = [net(batch(0)) for _ in range(10)]
        assert len({id(each) for each in results}) == 10 and all(type(each) is list for each in results)
        assert len({id(each[0]) for each in results}) == 10


def test_an_error_names_the_line_of_the_forward(repeated: list[int]) -> None:
    with dg.guard():
        net = Base()
        settled(lambda k: net(batch(k)).numpy())
        assert repeated
        net.parts.append(linear(5, 5))
        with pytest.raises(fluid.core.EnforceNotMet) as caught:
            net(batch(0))
        assert any(entry.name == "tail" for entry in caught.traceback)
        del net.parts[1]
        assert net(batch(0)).numpy().shape == (2,)


class Table(dg.Layer):
    """Looks ids up, which must be within the table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = dg.Embedding([5, 3], param_attr=weights([5, 3]))

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        return layers.reduce_sum(layers.tanh(x * 2.0), dim=-1)


@pytest.mark.parametrize("bad", [5, -1])
def test_ids_are_checked_each_time(bad: int, repeated: list[int]) -> None:
    with dg.guard():
        net = Table()
        for k in range(12):
            net(dg.to_variable(np.array([[k % 5], [1]]))).numpy()
        assert len(repeated) >= 5
        with pytest.raises(fluid.core.EnforceNotMet, match=f"value {bad}"):
            net(dg.to_variable(np.array([[bad], [1]]))).numpy()
        assert net(dg.to_variable(np.array([[4], [1]]))).numpy().shape == (2, 1)


def test_an_interrupt_in_a_forward_leaves_everything_usable(repeated: list[int]) -> None:
    def run() -> list[Any]:
        net, found = Base(), []
        original = net.parts[0].forward
        for k in range(24):
            if k in (3, 4, 5, 15):  # while it is observed, among others

                def stop(x: Any) -> Any:
                    original(x)
                    raise KeyboardInterrupt

                net.parts[0].forward = stop
                with pytest.raises(KeyboardInterrupt):
                    net(batch(k))
                del net.parts[0].forward
            loss = layers.mean(net(batch(k)))
            loss.backward()
            found.append((loss.numpy().tolist(), net.a.weight.gradient().tolist()))
        return found

    both(run)


def test_the_flag_turns_it_off(repeated: list[int]) -> None:
    fluid.set_flags({"FLAGS_eager_layers": False})
    try:
        with dg.guard():
            net = Base()
            settled(lambda k: net(batch(k)).numpy())
    finally:
        fluid.set_flags({"FLAGS_eager_layers": True})
    assert not repeated


def test_traced_layers_and_checked_gradients_see_all_ops(repeated: list[int]) -> None:
    with dg.guard():
        net = Base()
        settled(lambda k: layers.mean(net(batch(k))).numpy())
        assert repeated
        out, traced = dg.TracedLayer.trace(net, [batch(0)])
        assert [op.type for op in traced.program.global_block().ops].count("matmul") == 3
        assert np.allclose(traced([batch(0)])[0], out.numpy())
        fluid.check_grad(layers.mean(net(batch(0))))


def test_a_layer_is_released_with_its_parameters() -> None:
    """At once: nothing that is known of its calls refers to it."""
    with dg.guard():
        net = Base()
        for k in range(12):
            layers.mean(net(batch(k))).numpy()
        gc.collect()
        gc.disable()
        try:
            gone = weakref.ref(net), weakref.ref(net.a), weakref.ref(net.a.weight)
            del net
            assert [reference() for reference in gone] == [None, None, None]
        finally:
            gc.enable()


class Listing(Base):
    """A layer that collects what it computes."""

    def forward(self, x: Any) -> Any:
        found = []
        for _ in range(3):
            x = layers.tanh(x * 0.5)
            found.append(x)
        return self.tail(layers.concat(found, 0))


def test_an_observed_call_holds_nothing_of_what_it_computed(
    repeated: list[int], monkeypatch: pytest.MonkeyPatch, globals_restored: None
) -> None:
    """Values held on would make the block of the step another one."""
    needed: dict[Any, set[Any]] = {}
    run = recorder.blocks.run

    def noted(point: Any, arrays: list[Any], alive: tuple[int, ...], **keeps: bool) -> Any:
        needed.setdefault(point, set()).add(alive)
        return run(point, arrays, alive, **keeps)

    monkeypatch.setattr(recorder.blocks, "run", noted)
    gc.disable()
    try:
        trained(Listing, None, on=True)
    finally:
        gc.enable()
    assert repeated
    assert max(map(len, needed.values())) == 1
