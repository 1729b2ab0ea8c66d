"""Distributed tables: dealt to servers by id, rows appear when they are asked for, updated by the sum of gradients."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.base.containers import SelectedRows
from fluidjax.base.flags import FLAGS
from fluidjax.distributed.tables import Table
from fluidjax.execution.rooms.buckets import SMALLEST, least_rows
from fluidjax.files.cursor import Cursor
from fluidjax.files.tensor import decode_rows
from fluidjax.framework import program_view
from lowering import values as low
from lowering.engine.plan import make_plan
from lowering.program import BlockView, OpView, ProgramView, VarView
from tests.distributed.jobs import ROWS, WIDTH, Job, batch, sparse


def test_a_distributed_table_trains_as_one_process_does(tmp_path):
    job = Job(partial(sparse, True))

    def save(step, exe, main):
        if step == 2:
            fluid.io.save_persistables(exe, str(tmp_path), main)

    with job.running():
        losses = job.train(4, save)
    assert not job.errors
    np.testing.assert_allclose(losses, Job(sparse).alone(), rtol=1e-5)
    used = {int(i) for step in range(3) for i in batch(step)["ids"][:, 0]}
    for number in range(2):
        file = tmp_path / "__lookup_table__" / f"table_{number}"
        mine = sorted(i for i in used if i % 2 == number)
        assert file.stat().st_size == 4 + 8 + 8 * len(mine) + 8 + 8 + 6 + 4 * ROWS // 2 * WIDTH
        with file.open("rb") as opened:
            value = decode_rows(Cursor(opened, "table"))
        assert sorted(value.rows) == mine and value.array.shape == (len(mine), WIDTH)


def test_a_trainer_has_a_tables_shape_alone(monkeypatch):
    """What reads its elements raises, whichever way it runs."""
    main, startup, other = fluid.Program(), fluid.Program(), fluid.Program()
    with fluid.program_guard(other):
        fluid.layers.fill_constant([1], "float32", 1.0)
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        loss, block = sparse(), startup.global_block()
        exe = fluid.Executor(fluid.CPUPlace())
        block.append_op(type="fake_init", outputs={"Out": block.var("table")}, attrs={"shape": [ROWS, WIDTH]})
        feed = {name: batch(0)[name] for name in ("ids", "y")}
        for checked in (False, True):
            monkeypatch.setitem(FLAGS, "FLAGS_check_nan_inf", checked)
            exe.run(startup)
            for run in (lambda: exe.run(main, feed, [loss]), lambda: exe.run(other, fetch_list=["table"])):
                with pytest.raises(RuntimeError, match="'table', of which this process has the shape alone"):
                    run()
        tensor = fluid.global_scope().find_var("table").get_tensor()
        assert (tensor.shape(), tensor._is_initialized(), np.array(tensor).size) == ([ROWS, WIDTH], False, 0)


def table(room: int) -> Table:
    scope = fluid.Scope()
    rows = scope.var("t").get_selected_rows()
    rows.get_tensor().set(np.arange(room, dtype="float32").reshape(room, 1), fluid.CPUPlace())
    assert isinstance(scope.find_var("t")._holder, SelectedRows)
    return Table(scope, "t")


def test_rows_take_the_values_of_the_startup_program_in_the_order_of_their_first_use():
    found = table(4)
    assert found.places(np.array([9, 3, 9])).tolist() == [0, 1, 0]
    assert found.places(np.array([3, 5])).tolist() == [1, 2]
    assert found.file_value().rows == [9, 3, 5]


def test_a_full_table_doubles():
    found = table(2)
    assert found.places(np.array([10**15, 7, 8])).tolist() == [0, 1, 2]
    np.testing.assert_array_equal(np.asarray(found.values)[:, 0], [0, 1, 0, 0])
    gradient = found.localized(low.SelectedRows(np.array([8, 10**15]), np.ones((2, 1), np.float32), 0))
    assert gradient.rows.tolist() == [2, 0] and gradient.height == 4


def test_trainers_make_no_memory_of_tables_that_servers_hold():
    main, _, _, transpiler = Job(sparse)._programs()
    ops = transpiler.get_trainer_program(wait_port=False).global_block().ops
    assert "distributed_lookup_table" in [op.type for op in ops]
    segments = make_plan(program_view(main), ["mean_0.tmp_0"]).segments
    asking = [s for s in segments if any(op.type == "lookup_table_grad" for op in s.ops)]
    assert [("table" in s.reads, "table" in s.forms) for s in asking] == [(True, True)]


def test_networks_with_huge_tables_have_room_for_few_rows_more():
    table = VarView("w", shape=(10**9, 64), persistable=True)
    asks = OpView("distributed_lookup_table", {"W": ["w"]}, {}, {})
    program = ProgramView((BlockView(0, -1, (asks,), {"w": table}),))
    assert least_rows(program) == SMALLEST
