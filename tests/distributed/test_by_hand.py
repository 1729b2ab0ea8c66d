"""Servers and clients written by hand: ``layers.io.ListenAndServ``, ``Send`` and ``Recv``."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.distributed.client import client
from fluidjax.layers.io import BlockGuardServ, ListenAndServ, Recv, Send
from fluidjax.op import Operator
from tests.distributed.jobs import free_ports


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
    (endpoint,) = free_ports(1)
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
        thread.join(20)
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
    (endpoint,) = free_ports(1)
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
        thread.join(20)
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


def test_rows_of_a_table_that_only_the_servers_scope_holds() -> None:
    """``lookup_table`` with ``remote_prefetch`` asks the servers, and they serve what their scopes began with."""
    endpoints, threads = free_ports(2), []
    for number, endpoint in enumerate(endpoints):
        program, scope = fluid.Program(), fluid.Scope()
        rows = 10 * number + np.arange(4, dtype="float32")
        scope.var("table").get_tensor().set(np.repeat(rows[:, None], 3, axis=1), fluid.CPUPlace())
        attrs = {"optimize_blocks": [program._create_block(0)], "endpoint": endpoint, "Fanin": 1}
        program.global_block().append_op(type="listen_and_serv", inputs={"X": []}, outputs={}, attrs=attrs)
        run = {"args": (program,), "kwargs": {"scope": scope}, "daemon": True}
        threads.append(threading.Thread(target=fluid.Executor(fluid.CPUPlace()).run, **run))
        threads[-1].start()
    scope, place = fluid.Scope(), fluid.CPUPlace()
    asked = {"remote_prefetch": True, "epmap": endpoints, "table_names": ["table"] * 2, "height_sections": [4, 4]}
    try:
        for op, ids in (("lookup_table", [[1], [2], [5]]), ("lookup_table_v2", [[7], [0]])):
            scope.var("W").get_tensor().set(np.full((8, 3), -1.0, "float32"), place)
            scope.var("Ids").get_tensor().set(np.array(ids, "int64"), place)
            out = scope.var("Out").get_tensor()
            Operator(op, W="W", Ids="Ids", Out="Out", **asked).run(scope, place)
            expected = np.array([number % 4 + 10 * (number // 4) for (number,) in ids], "float32")
            np.testing.assert_array_equal(np.array(out), np.repeat(expected[:, None], 3, axis=1))
    finally:
        client.complete()
        client.leave()
        for thread in threads:
            thread.join(20)


def test_nce_does_not_fetch_its_weights() -> None:
    """Fluid's reads rows of servers there; nothing that fluidjax transpiles needs it."""
    scope, place = fluid.Scope(), fluid.CPUPlace()
    for name, shape, dtype in (("x", [2, 4], "float32"), ("w", [8, 4], "float32"), ("y", [2, 1], "int64")):
        scope.var(name).get_tensor().set(np.ones(shape, dtype), place)
    outs = {slot: slot for slot in ("Cost", "SampleLogits", "SampleLabels")}
    for name in outs:
        scope.var(name).get_tensor()
    asked = {"remote_prefetch": True, "epmap": ["127.0.0.1:1"], "table_names": ["w"], "height_sections": [8]}
    op = Operator("nce", Input="x", Weight="w", Label="y", **outs, num_total_classes=8, **asked)
    with pytest.raises(fluid.core.EnforceNotMet, match="held by servers"):
        op.run(scope, place)
