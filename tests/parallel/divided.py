"""Parameters of which each device has a part; run by ``tests.parallel.physical``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fluidjax as fluid
from fluidjax import layers, optimizer

L2, NORM = fluid.regularizer.L2Decay(0.01), fluid.clip.GradientClipByGlobalNorm(0.5)
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adam": lambda: optimizer.Adam(0.05, lazy_mode=True),
    "momentum": lambda: optimizer.Momentum(0.05, 0.9, regularization=L2, grad_clip=NORM),
    "lamb": lambda: optimizer.Lamb(0.05),
}


class Net:
    """A table and two products, on one device or on several that divide them.

    Args:
        devices: how many; 0: the program runs as it is.
        rows: of the table.
    """

    def __init__(self, devices: int, name: str = "adam", *, sparse: bool = False, rows: int = 24, divide: bool = True):
        self.main, startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(self.main, startup), fluid.unique_name.guard():
            ids, x, y = fluid.data("ids", [None, 3], "int64"), fluid.data("x", [None, 5]), fluid.data("y", [None, 1])
            table = {"is_sparse": sparse, "is_distributed": divide, "padding_idx": 2, "param_attr": "emb"}
            words = layers.reshape(fluid.embedding(ids, [rows, 8], **table), [-1, 24])
            hidden = layers.fc(layers.concat([words, x], 1), 16, act="tanh", param_attr="w0", bias_attr="b0")
            out = layers.reduce_sum(layers.fc(hidden, 8, param_attr="w1", bias_attr="b1"), 1, keep_dim=True)
            self.loss = layers.mean(layers.square_error_cost(out, y))
            OPTIMIZERS[name]().minimize(self.loss)
        for parameter in ("w0", "w1") if divide else ():
            self.main.global_block().var(parameter).is_distributed = True
        self.executor, numbers = fluid.Executor(), np.random.RandomState(5)
        self.executor.run(startup, scope=self.scope)
        for parameter in self.main.all_parameters():
            tensor = self.tensor(parameter.name)
            tensor.set(numbers.uniform(-0.5, 0.5, tensor.shape()).astype("float32"), fluid.CPUPlace())
        self.program: Any = self.main
        if devices:
            places = [fluid.CPUPlace()] * devices
            self.program = fluid.CompiledProgram(self.main).with_data_parallel(self.loss.name, places=places)

    def tensor(self, name: str) -> Any:
        return self.scope.find_var(name).get_tensor()

    def run(self, step: int, size: int = 16, fetches: tuple[str, ...] = ()) -> list[np.ndarray]:
        """A step: the mean of the losses, and what is fetched from device 0."""
        numbers = np.random.RandomState(step)
        feed = {"ids": numbers.randint(0, 24, (size, 3)), "x": numbers.rand(size, 5).astype("float32")}
        feed["y"] = numbers.rand(size, 1).astype("float32")
        merge = {} if self.program is self.main else {"return_merged": False}
        found = self.executor.run(self.program, feed, [self.loss, *fetches], scope=self.scope, **merge)
        firsts = found[1:] if self.program is self.main else [parts[0] for parts in found[1:]]
        return [np.mean(found[0]), *map(np.array, firsts)]

    def values(self) -> dict[str, np.ndarray]:
        names = [v.name for v in self.main.list_vars() if v.persistable]
        return {name: np.array(self.tensor(name)) for name in names}

    def parts(self) -> dict[str, tuple[int, ...]]:
        """Of each variable that is in parts, the shape of device 0's."""
        found = {}
        for name in self.values():
            stored = self.tensor(name)._stored
            state = stored._state
            if stored._index < len(state.buffers.parts):
                own = state.replaced[state.buffers.parts[stored._index].buffer]
                if not own.is_fully_replicated:
                    found[name] = own.addressable_data(0).shape
        return found


def _agree(one: Net, other: Net, fetches: tuple[str, ...], sizes: tuple[int, ...] = (16, 16, 16)) -> None:
    for step, size in enumerate(sizes):
        for found, wanted in zip(one.run(step, size, fetches), other.run(step, size, fetches), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    others = other.values()
    for name, value in one.values().items():
        np.testing.assert_allclose(value, others[name], rtol=1e-4, atol=1e-5, err_msg=name)


def check_devices_have_parts_and_compute_what_one_does() -> None:
    """Outputs and gradients are those of the program as it is, on 2, 4 and 8 devices."""
    for count in (2, 4, 8):
        net = Net(count)
        _agree(net, Net(0), ("emb@GRAD", "w0@GRAD", "w1@GRAD", "emb"))
        states = [("emb", (24 // count, 8)), ("w0", (29, 16 // count)), ("w1", (16, 8 // count))]
        shapes = {f"{n}{kept}": shape for n, shape in states for kept in ("", "_moment1_0", "_moment2_0")}
        assert net.parts() == shapes


def check_updates_that_need_the_whole() -> None:
    """Clips by the norm, decay and updates by a parameter's norm are those of the whole; so are sparse gradients."""
    for name, sparse in (("momentum", False), ("momentum", True), ("lamb", False), ("adam", True)):
        net = Net(4, name, sparse=sparse)
        _agree(net, Net(0, name, sparse=sparse), ("w1",))
        assert {"emb": (6, 8), "w0": (29, 4), "w1": (16, 2)}.items() <= net.parts().items(), name


def check_unequal_shares_go_on_with_the_whole() -> None:
    """Batches that do not go to physical devices alike train the same parameters."""
    _agree(Net(4), Net(4, divide=False), (), (16, 13, 16))


def check_checkpoints_are_whole() -> None:
    """A checkpoint of parts is that of the whole, byte for byte."""
    net, folder = Net(4), Path(tempfile.mkdtemp())
    net.run(0)
    with fluid.scope_guard(net.scope):
        fluid.io.save_persistables(net.executor, str(folder / "parts"), net.main)
    whole = Net(0)
    for name, value in net.values().items():
        whole.tensor(name).set(value, fluid.CPUPlace())
    assert net.parts()
    with fluid.scope_guard(whole.scope):
        fluid.io.save_persistables(whole.executor, str(folder / "whole"), whole.main)
    for path in (folder / "whole").iterdir():
        assert path.read_bytes() == (folder / "parts" / path.name).read_bytes(), path.name
    with fluid.scope_guard(net.scope):
        fluid.io.load_persistables(net.executor, str(folder / "whole"), net.main)
    np.testing.assert_allclose(net.run(1)[0], whole.run(1)[0], rtol=1e-5)


def check_ids_outside_of_all_parts_are_refused() -> None:
    """An id is held against the whole table."""
    net = Net(2, rows=22)
    before = net.values()
    try:
        net.run(0)
    except fluid.core.EnforceNotMet as error:
        assert "< 22" in str(error)
    else:
        raise AssertionError("an id out of range was taken")
    after = net.values()
    assert all(np.array_equal(before[n], after[n]) for n in before) and len(jax.devices("cpu")) >= 8
