"""What nobody should feed: an error of a documented kind that names the variable, and the scope unchanged."""

import random
import time

import numpy as np
import pytest

import fluidjax as fluid
from lowering.errors import OpError
from tests.conftest import seed_of
from tests.files.conftest import snapshot
from tests.fuzz.mutate import SECONDS

EXE = fluid.Executor()
REFUSALS = (ValueError, TypeError, AssertionError, OpError)


def tensor(rows: object, lod: list) -> fluid.LoDTensor:
    out = fluid.LoDTensor()
    out.set(np.asarray(rows), fluid.CPUPlace())
    out._lod = lod  # past the checks of set_lod
    return out


HOSTILE = [
    None,
    "text",
    b"bytes",
    {},
    [],
    [[1, 2], [3]],
    object(),
    1j,
    10**400,
    float("nan"),
    np.zeros((0, 3), np.float32),
    np.zeros((2, 3, 1), np.float32),
    np.zeros((2, 4), np.float32),
    np.zeros((2, 3), np.float64),
    np.zeros((2, 3), np.complex64),
    np.zeros((2, 3), "S4"),
    np.zeros((2, 3), object),
    np.zeros((2, 3), "M8[s]"),
    np.zeros((2, 3), ">f4"),
    np.zeros((2, 3), np.dtype([("a", "f4")])),
    np.ma.masked_array(np.zeros((2, 3), np.float32), True),
    np.array([[5], [-1]], np.int64),
    np.array([[1 << 40], [0]], np.int64),
    fluid.LoDTensor(),
    tensor(np.zeros((4, 3), np.float32), [[0, 2, 9]]),
    tensor(np.zeros((4, 3), np.float32), [[0, 3, 2, 4]]),
    tensor(np.zeros((4, 3), np.float32), [[1, 4]]),
    tensor(np.zeros((4, 3), np.float32), [[]]),
    tensor(np.zeros((4, 3), np.float32), [[0, 5], [0, 1, 4]]),
    tensor(np.zeros((4, 1), np.int64), [[0, 1 << 62]]),
]


@pytest.fixture(scope="module")
def net():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3], "float32", lod_level=1)
        y = fluid.data("y", [None, 1], "int64")
        pooled = fluid.layers.sequence_pool(x, "sum")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(pooled, 4, act="softmax"), y))
        fluid.optimizer.Adam(0.1).minimize(loss)
    return main, startup, loss


GOOD = {"x": tensor(np.ones((4, 3), np.float32), [[0, 2, 4]]), "y": np.array([[1], [2]], np.int64)}


@pytest.mark.filterwarnings("ignore")
def test_the_executor(net):
    main, startup, loss = net
    draw, end = random.Random(seed_of("feeds")), time.monotonic() + SECONDS
    with fluid.scope_guard(fluid.Scope()):
        scope = fluid.global_scope()
        EXE.run(startup)
        EXE.run(main, GOOD, [loss])
        pairs = [(name, value) for name in GOOD for value in HOSTILE]
        while pairs or time.monotonic() < end:
            name, value = pairs.pop() if pairs else (draw.choice(list(GOOD)), draw.choice(HOSTILE))
            before = snapshot(scope)
            try:
                EXE.run(main, GOOD | {name: value}, [loss])
            except REFUSALS as error:
                assert repr(name) in str(error) or "built at: File" in str(error), f"{value!r} for {name}: {error}"
                assert snapshot(scope) == before, f"{value!r} for {name} has changed the scope"
        assert np.isfinite(EXE.run(main, GOOD, [loss])[0]).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", [0, 1])
def test_the_feeder(net, at):
    feeder = fluid.DataFeeder(["x", "y"], fluid.CPUPlace(), net[0])
    for value in HOSTILE:
        sample = [[[1.0, 2.0, 3.0]], [1]]
        sample[at] = value
        try:
            feeder.feed([sample])
        except REFUSALS:
            pass
    assert np.array(feeder.feed([([[1.0, 2.0, 3.0]], [1])])["y"]).tolist() == [[1]]
