"""Servers and clients written by hand: ``layers.io.ListenAndServ``, ``Send`` and ``Recv``."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.distributed.client import client
from fluidjax.layers.io import BlockGuardServ, ListenAndServ, Recv, Send
from fluidjax.op import Operator
from tests.ports import free_endpoints


def _declared(program: fluid.Program, name: str, persistable: bool = True) -> fluid.Variable:
    return program.global_block().create_var(name=name, shape=[2, 2], dtype="float32", persistable=persistable)


def _server(endpoint: str, persistable: bool = True) -> tuple[fluid.Program, fluid.Program]:
    """(main, startup) of a server that multiplies what it gets by ten."""
    main, startup = fluid.Program(), fluid.Program()
    fluid.initializer.Constant(7.0)(_declared(startup, "result"), startup.global_block())
    with fluid.program_guard(main, startup):
        result, sent = _declared(main, "result", persistable), _declared(main, "sent")
        server = ListenAndServ(endpoint, [sent], optimizer_mode=False)
        with server.do():
            fluid.layers.assign(fluid.layers.scale(sent, 10.0), result)
            assert server.parent_block() is main.global_block()
    return main, startup


def _client(endpoint: str, *, sends: bool) -> fluid.Program:
    program = fluid.Program()
    with fluid.program_guard(program):
        if sends:
            Send(endpoint, [fluid.data("sent", [2, 2])])
        assert Recv(endpoint, [_declared(program, "result")])[0].name == "result"
    return program


@pytest.mark.parametrize("persistable", [True, False])
def test_a_server_runs_its_block_on_what_clients_send(persistable: bool) -> None:
    """What the block writes into variables around it may be asked for, as in Fluid, where nobody drops it."""
    (endpoint,) = free_endpoints(1)
    main, startup = _server(endpoint, persistable)
    asking, sending = _client(endpoint, sends=False), _client(endpoint, sends=True)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    thread = threading.Thread(target=exe.run, args=(main,), kwargs={"scope": scope}, daemon=True)
    thread.start()
    try:
        run = fluid.Executor(fluid.CPUPlace()).run
        np.testing.assert_array_equal(run(asking, fetch_list=["result"])[0], np.full((2, 2), 7.0))
        for step in (1.0, 2.5):
            fed = {"sent": np.full((2, 2), step, "float32")}
            np.testing.assert_array_equal(run(sending, feed=fed, fetch_list=["result"])[0], np.full((2, 2), 10 * step))
    finally:
        client.complete()
        client.leave()
        thread.join(120)
    assert not thread.is_alive()


def _averaging_server(endpoint: str) -> fluid.Program:
    """Server of one federated trainer: ``w`` becomes half of what it sends."""
    main = fluid.Program()
    w, sent = _declared(main, "w"), _declared(main, "w.opti.trainer_0", persistable=False)
    block = main._create_block()
    block.append_op(type="scale", inputs={"X": sent}, outputs={"Out": w}, attrs={"scale": 0.5})
    main._rollback()
    attrs = {"endpoint": endpoint, "Fanin": 1, "optimize_blocks": [block], "sync_mode": True}
    main.global_block().append_op(type="fl_listen_and_serv", inputs={"X": [sent]}, outputs={}, attrs=attrs)
    return main


def _federated_trainer(endpoint: str) -> tuple[fluid.Program, fluid.Program]:
    """(receives ``w``, sends it)."""
    pulls, pushes = fluid.Program(), fluid.Program()
    at = {"epmap": [endpoint]}
    block, w = pulls.global_block(), _declared(pulls, "w")
    block.append_op(type="recv", inputs={"X": []}, outputs={"Out": [w]}, attrs={**at, "recv_varnames": ["w"]})
    block.append_op(type="fetch_barrier", inputs={}, outputs={"Out": []}, attrs={"endpoints": [endpoint]})
    block, w = pushes.global_block(), _declared(pushes, "w")
    sent = _declared(pushes, "w.opti.trainer_0")
    block.append_op(type="assign", inputs={"X": w}, outputs={"Out": sent})
    block.append_op(type="send", inputs={"X": [sent]}, outputs={"Out": []}, attrs=at)
    block.append_op(type="send_barrier", inputs={"X": []}, outputs={"Out": []}, attrs={"endpoints": [endpoint]})
    return pulls, pushes


def test_a_federated_server_begins_where_trainers_fetch() -> None:
    (endpoint,) = free_endpoints(1)
    main, (pulls, pushes) = _averaging_server(endpoint), _federated_trainer(endpoint)
    scope, own = fluid.Scope(), fluid.Scope()
    scope.var("w").get_tensor().set(np.full((2, 2), 8.0, "float32"), fluid.CPUPlace())
    exe = fluid.Executor(fluid.CPUPlace())
    thread = threading.Thread(target=exe.run, args=(main,), kwargs={"scope": scope}, daemon=True)
    thread.start()
    try:
        run = fluid.Executor(fluid.CPUPlace()).run
        for expected in (8.0, 4.0, 2.0):
            np.testing.assert_array_equal(run(pulls, scope=own, fetch_list=["w"])[0], np.full((2, 2), expected))
            run(pushes, scope=own)
    finally:
        client.complete()
        client.leave()
        thread.join(120)
    assert not thread.is_alive()


def test_what_is_written() -> None:
    program = fluid.Program()
    with fluid.program_guard(program):
        x, y, mark = (_declared(program, name) for name in ("x", "y", "mark"))
        Send("a:1,b:1,a:1", [x, y, x], mark)
        Recv("a:1", [x], mark, sync=False)
    ops = program.global_block().ops
    assert [op.type for op in ops] == ["send", "send_barrier", "recv"]
    assert (ops[0].attr("epmap"), ops[0].attr("op_role")) == (["a:1", "b:1", "a:1"], 4)
    assert (ops[0].output("Out"), ops[1].input("X"), ops[2].input("X")) == (["mark"], ["mark"], ["mark"])
    assert ops[1].attr("endpoints") == ["a:1", "b:1"]


def test_parameters_and_gradients_of_a_server() -> None:
    program = fluid.Program()
    with fluid.program_guard(program):
        w, g, rate = (_declared(program, name) for name in ("w", "g", "rate"))
        server = ListenAndServ("a:1", [g])
        with server.do():
            inputs = {"Param": w, "Grad": g, "LearningRate": rate}
            program.current_block().append_op(type="sgd", inputs=inputs, outputs={"ParamOut": w})
            assert server.get_params_and_grads() == (["w"], ["g"])
        op = program.global_block().ops[-1]
        assert (op.type, op.input("X"), op.attr("Fanin")) == ("listen_and_serv", ["g"], 1)
        with pytest.raises(AssertionError, match="expected to be inside"):
            server.get_params_and_grads()
    with pytest.raises(AssertionError, match="expected send_vars as a list"):
        Send("a:1", w)
    with pytest.raises(TypeError, match="BlockGuardServ takes a ListenAndServ"):
        BlockGuardServ(w)


@contextlib.contextmanager
def _serving(tables: Sequence[np.ndarray]) -> Iterator[dict[str, Any]]:
    """Servers whose scopes hold the parts of a table, and no program that updates them: the attributes to ask them."""
    endpoints, threads = free_endpoints(len(tables)), []
    for endpoint, rows in zip(endpoints, tables, strict=True):
        program, scope = fluid.Program(), fluid.Scope()
        scope.var("table").get_tensor().set(rows, fluid.CPUPlace())
        attrs = {"optimize_blocks": [program._create_block(0)], "endpoint": endpoint, "Fanin": 1}
        program.global_block().append_op(type="listen_and_serv", inputs={"X": []}, outputs={}, attrs=attrs)
        run = {"args": (program,), "kwargs": {"scope": scope}, "daemon": True}
        threads.append(threading.Thread(target=fluid.Executor(fluid.CPUPlace()).run, **run))
        threads[-1].start()
    names, heights = ["table"] * len(tables), [len(rows) for rows in tables]
    try:
        yield {"remote_prefetch": True, "epmap": endpoints, "table_names": names, "height_sections": heights}
    finally:
        client.complete()
        client.leave()
        for thread in threads:
            thread.join(120)


def _set(**values: np.ndarray) -> fluid.Scope:
    scope = fluid.Scope()
    for name, value in values.items():
        scope.var(name).get_tensor().set(value, fluid.CPUPlace())
    return scope


def test_rows_of_a_table_that_only_the_servers_scope_holds() -> None:
    """``lookup_table`` with ``remote_prefetch`` asks the servers, and they serve what their scopes began with."""
    numbers = np.array([0, 1, 2, 3, 10, 11, 12, 13], "float32")
    table = np.repeat(numbers[:, None], 3, axis=1)
    with _serving([table[:4], table[4:]]) as asked:
        for op, ids in (("lookup_table", [[1], [2], [5]]), ("lookup_table_v2", [[7], [0]])):
            scope = _set(W=np.full((8, 3), -1.0, "float32"), Ids=np.array(ids, "int64"))
            out = scope.var("Out").get_tensor()
            Operator(op, W="W", Ids="Ids", Out="Out", **asked).run(scope, fluid.CPUPlace())
            np.testing.assert_array_equal(np.array(out), table[np.array(ids)[:, 0]])


def test_the_last_part_of_a_table_has_the_rest_of_its_rows() -> None:
    """As in Fluid, where sections say where parts begin; ids end with the rows of the trainer's own variable."""
    table = np.arange(10, dtype="float32").reshape(5, 2)
    with _serving([table]) as asked:
        asked["height_sections"] = [2]

        def rows(*ids: int) -> np.ndarray:
            scope = _set(W=np.zeros((5, 2), "float32"), Ids=np.array(ids, "int64")[:, None])
            out = scope.var("Out").get_tensor()
            Operator("lookup_table", W="W", Ids="Ids", Out="Out", **asked).run(scope, fluid.CPUPlace())
            return np.array(out)

        np.testing.assert_array_equal(rows(4, 0, 3), table[[4, 0, 3]])
        with pytest.raises(fluid.core.EnforceNotMet, match="(?s)ids from 1 to 5.*expected: 0 <= id < 5.*received"):
            rows(1, 5)


PROVEN = {"nce_of_rows"}  # against nce, whose gradient is held against the derivative
GIVEN = [0, 1]  # the other classes of every row


def _nce(
    program: fluid.Program, rng: np.random.RandomState, level: int = 0, **settings: Any
) -> tuple[fluid.Variable, dict[str, Any]]:
    """A loss of rows over five classes with its gradients, and four rows to feed."""
    with fluid.program_guard(program, fluid.Program()):
        x, y = fluid.data("x", [None, 8], "float32", level), fluid.data("y", [None, 1], "int64", level)
        x.stop_gradient = False
        share = fluid.data("share", [None, 1], "float32", level)
        w, b = fluid.ParamAttr("w"), fluid.ParamAttr("b")
        cost = fluid.layers.nce(x, y, 5, share, w, b, num_neg_samples=2, is_sparse=True)
        loss = fluid.layers.mean(cost)
        fluid.backward.append_backward(loss)
    for op in program.global_block().ops:
        for name, value in settings.items():
            if op.type == "nce":
                op._set_attr(name, value)
        if op.type.startswith("nce"):
            op._set_attr("custom_neg_classes", GIVEN)
    feed = {"x": rng.rand(4, 8).astype("float32"), "y": np.array([[0], [1], [4], [3]], "int64")}
    return loss, {**feed, "share": rng.rand(4, 1).astype("float32")}


def test_nce_of_sequences_over_classes_whose_weights_servers_hold() -> None:
    """Rows of sequences come padded to a bucket, and their number differs from run to run."""
    rng = np.random.RandomState(3)
    w, b = rng.rand(5, 8).astype("float32"), rng.rand(5, 1).astype("float32")

    def losses(weights: np.ndarray, **settings: Any) -> list[np.ndarray]:
        program = fluid.Program()
        loss, _ = _nce(program, rng, level=1, **settings)
        draw = np.random.RandomState(4)
        found = []
        for lengths in ([3, 2], [1, 6]):
            count = sum(lengths)
            given = {"x": draw.rand(count, 8).astype("float32"), "y": draw.randint(0, 5, (count, 1)).astype("int64")}
            given["share"] = draw.rand(count, 1).astype("float32")
            feed = {n: fluid.create_lod_tensor(v, [lengths], fluid.CPUPlace()) for n, v in given.items()}
            found += _run(program, loss, feed, weights, b)
        return found

    expected = losses(w)
    with _serving([w[:2], w[2:]]) as asked:
        found = losses(np.zeros_like(w), **asked)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def _run(program: fluid.Program, loss: fluid.Variable, feed: dict[str, Any], w: np.ndarray, b: np.ndarray) -> list[Any]:
    scope = _set(w=w, b=b)
    fetched = [loss, "x@GRAD", "b@GRAD", "w@GRAD"]
    exe = fluid.Executor(fluid.CPUPlace())
    values = exe.run(program, feed=feed, fetch_list=fetched, scope=scope, return_numpy=False)
    sparse = values.pop()
    dense = np.zeros(w.shape, "float32")
    np.add.at(dense, np.array(sparse.rows()), np.array(sparse.get_tensor()))
    return [*map(np.array, values), dense]


def test_nce_over_classes_whose_weights_servers_hold() -> None:
    """The loss and all gradients are those of weights at hand; 1.8.5's gradient of Input reads the trainer's own."""
    rng = np.random.RandomState(0)
    w, b = rng.rand(5, 8).astype("float32"), rng.rand(5, 1).astype("float32")
    program = fluid.Program()
    expected = _run(program, *_nce(program, np.random.RandomState(1)), w, b)
    with _serving([w[:2], w[2:]]) as asked:
        program = fluid.Program()
        found = _run(program, *_nce(program, np.random.RandomState(1), **asked), np.zeros_like(w), b)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    assert all(np.abs(value).max() > 1e-3 for value in expected)


def test_draws_of_nce_over_classes_whose_weights_servers_hold() -> None:
    """Labels come first, draws follow the seed, and without SampleLabels the op has classes of its own."""
    x, y = np.ones((3, 4), "float32"), np.array([[1], [0], [7]], "int64")
    w, outs = np.arange(32, dtype="float32").reshape(8, 4) / 32, {"Cost": "c", "SampleLogits": "o", "SampleLabels": "s"}
    told = {"num_total_classes": 8, "num_neg_samples": 4, "seed": 3, "is_sparse": True}
    with _serving([w]) as asked:
        runs = []
        for slots in (outs, outs, {slot: outs[slot] for slot in ("Cost", "SampleLogits")}):
            scope = _set(x=x, w=np.zeros_like(w), y=y)
            for name in outs.values():
                scope.var(name).get_tensor()
            Operator("nce", Input="x", Weight="w", Label="y", **slots, **told, **asked).run(scope, fluid.CPUPlace())
            runs.append({name: np.array(scope.find_var(name).get_tensor()) for name in slots.values()})
    classes, scores = runs[0]["s"], runs[0]["o"]
    assert classes.shape == (3, 5) and (classes[:, :1] == y).all() and len(np.unique(classes[:, 1:])) > 1
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-w[classes].sum(axis=2))), rtol=1e-6)
    np.testing.assert_array_equal(runs[1]["s"], classes)
    np.testing.assert_array_equal(runs[2]["o"], scores)


def test_rows_that_hierarchical_sigmoid_fetches_are_filled_into_its_weights() -> None:
    rng = np.random.RandomState(2)
    w, own = rng.rand(6, 4).astype("float32"), np.full((6, 4), -1.0, "float32")
    given = {"X": rng.rand(2, 4).astype("float32"), "Label": np.array([[0], [1]], "int64")}
    given["PathTable"] = np.array([[0, 2, -1], [0, 1, 4]], "int64")
    given["PathCode"] = np.array([[0, 1, -1], [1, 0, 1]], "int64")
    outs = {"Out": "out", "PreOut": "pre", "W_Out": "W"}

    def run(weights: np.ndarray, **told: Any) -> tuple[np.ndarray, np.ndarray]:
        scope = _set(W=weights, **given)
        for name in ("out", "pre"):
            scope.var(name).get_tensor()
        inputs = {slot: slot for slot in ("W", *given)}
        Operator("hierarchical_sigmoid", **inputs, **outs, **told).run(scope, fluid.CPUPlace())
        return tuple(np.array(scope.find_var(name).get_tensor()) for name in ("out", "W"))

    expected = run(w)[0]
    with _serving([w[:2], w[2:]]) as asked:
        out, filled = run(own, **asked)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(filled, np.where(np.isin(range(6), [0, 1, 2, 4])[:, None], w, own))
