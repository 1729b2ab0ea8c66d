"""How often a trainer and its servers talk to each other in a step, and in which form."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.distributed.client import Client, RPCError, client
from fluidjax.distributed.requests import Request
from fluidjax.distributed.rounds import Rounds
from fluidjax.distributed.settings import CHUNK, SEND_AND_GET
from fluidjax.distributed.sizes import Sizes
from fluidjax.distributed.wire import NOW, Message
from fluidjax.framework import program_view
from lowering.engine.gather import gathered
from lowering.engine.plan import make_plan
from lowering.errors import OpError
from tests.distributed.jobs import ROWS, WIDTH, Job, constant, sparse


def two_tables() -> fluid.Variable:
    """A network whose second look-up stands after layers that need the first one's rows."""
    ids, y = fluid.data("ids", [None, 1], "int64"), fluid.data("y", [None, 1], "float32")

    def rows(name):
        return fluid.layers.embedding(ids, [ROWS, WIDTH], is_sparse=True, param_attr=constant(name, 0.3))

    deep = fluid.layers.fc(rows("deep"), WIDTH, param_attr=constant("w0", 0.1), bias_attr=constant("b0", 0.0))
    out = fluid.layers.fc(deep + rows("wide"), 1, param_attr=constant("w1", 0.2), bias_attr=constant("b1", 0.0))
    return fluid.layers.mean(fluid.layers.square_error_cost(out, y))


def test_a_step_of_sync_mode_asks_each_server_twice():
    """For all rows; to take all gradients and give all parameters."""
    job, seen = Job(two_tables), []
    with job.running():
        losses = job.train(4, lambda step, exe, main: seen.append(client.traffic.requests))
    assert not job.errors
    np.testing.assert_allclose(losses, job.alone(), rtol=1e-5)
    assert np.diff(seen).tolist() == [2 * 2] * 3


def test_lookups_and_sends_cut_a_step_once_each():
    _, _, loss, transpiler = Job(two_tables)._programs()
    main = transpiler.get_trainer_program(wait_port=False)
    segments = make_plan(program_view(main), [loss.name]).segments
    assert [segment.host for segment in segments] == [True, False, True, False]  # last: blocks become parameters
    assert [op.type for op in segments[0].ops] == ["distributed_lookup_table"] * 2
    assert {"send", "split_selected_rows", "send_barrier", "recv", "fetch_barrier"} == {
        op.type for op in segments[2].ops
    }


def test_what_is_sent_is_sent_before_it_changes():
    program = fluid.Program()
    block = program.global_block()
    for name in ("x", "y", "z"):
        block.create_var(name=name, shape=[2], dtype="float32")

    def scale(source, target):
        block.append_op(type="scale", inputs={"X": source}, outputs={"Out": target}, attrs={"scale": 2.0})

    block.append_op(type="send", inputs={"X": "x"}, outputs={"Out": []}, attrs={"epmap": ["a:1"]})
    scale("x", "y")
    scale("y", "x")
    block.append_op(type="send", inputs={"X": "y"}, outputs={"Out": "z"}, attrs={"epmap": ["a:1"]})
    scale("x", "x")
    scale("z", "z")
    view = program_view(program)
    found = [op.index for op in gathered(view, view.blocks[0].ops)]
    assert found == [1, 0, 2, 4, 3, 5]


def test_answers_are_short_once_that_is_known():
    sizes, ids = Sizes(), np.arange(10)
    rows, one = [("t", ids)], [("w", None)]
    assert sizes.are_short("SendVariable", Message(rows))
    assert not sizes.are_short("PrefetchVariable", Message(rows)) and not sizes.are_short("GetVariable", Message(one))
    sizes.learn("PrefetchVariable", [("t", ids[:0])], Message([("t", np.zeros((0, 4), np.float32))]))
    assert not sizes.are_short("PrefetchVariable", Message(rows))  # no rows do not tell how long rows are
    sizes.learn("PrefetchVariable", rows, Message([("t", np.zeros((10, 4), np.float32))]))
    sizes.learn("GetVariable", one, Message([("w", np.zeros(CHUNK // 4, np.float32))]))
    assert sizes.are_short("PrefetchVariable", Message(rows))
    assert not sizes.are_short("PrefetchVariable", Message([("t", np.arange(CHUNK // 32))]))
    assert not sizes.are_short("GetVariable", Message(one))
    assert not sizes.are_short("PrefetchVariable", Message(rows, flags=NOW))
    batch = [("w@GRAD", np.zeros(CHUNK // 4, np.float32)), ("b", None)]
    assert not sizes.are_short(SEND_AND_GET, Message(batch))
    sizes.learn(SEND_AND_GET, batch, Message([("b", np.zeros(3, np.float32))]))
    assert sizes.are_short(SEND_AND_GET, Message(batch))


def test_short_and_long_answers_of_one_table():
    job, asked = Job(sparse, servers=1, config={"sync_mode": False}, sync=False, min_block_size=10**6), Client()

    def ask(step, exe, main):
        for count in (3, 3, 2 * CHUNK // (4 * WIDTH), 3):
            (rows,) = asked.ask("PrefetchVariable", [(job.endpoints[0], "table", np.zeros(count, np.int64))])
            assert rows.shape == (count, WIDTH)
        known = asked.server(job.endpoints[0])._sizes._known
        known["PrefetchVariable", "table"] = 1.0  # what is not true of this server
        with pytest.raises(RPCError, match="longer than a frame"):
            asked.ask("PrefetchVariable", [(job.endpoints[0], "table", np.zeros(CHUNK // 16, np.int64))])
        asked.leave()

    with job.running():
        job.train(1, ask)
    assert not job.errors


def test_a_connection_whose_end_is_heard_of_first_is_a_trainer_that_is_gone():
    serving = Rounds(None, 2)
    serving.handle(Request("Gone", Message(trainer=1)))
    with pytest.raises(OpError, match="trainer 1 ended without completing"):
        serving.handle(Request("Attend", Message(trainer=1)))
