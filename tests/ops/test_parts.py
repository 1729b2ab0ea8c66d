"""Values in parts for servers, against what Paddle 1.8.5 computes of the same."""

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.core import VarDesc

ROWS, VALUES = [7, 3, 3, 10, 0], np.arange(10, dtype="float32").reshape(5, 2)
IDS = np.array([[7], [3], [3], [10], [0], [4], [7]], "int64")
PROVEN = {"split_byref", "split_selected_rows"}
MORE = np.array([[5], [3]], "int64")


class Run:
    """One op in a program of its own; variables hold what is put into the scope, or fed."""

    def __init__(self):
        self.main, self.scope = fluid.Program(), fluid.Scope()
        self.block, self.feed = self.main.global_block(), {}

    def var(self, name, shape=(), dtype="float32", kind=VarDesc.VarType.LOD_TENSOR, lod_level=0):
        return self.block.create_var(
            name=name, shape=shape, dtype=dtype, type=kind, persistable=True, lod_level=lod_level or None
        )

    def rows(self, name, rows=ROWS, values=VALUES, height=20):
        sparse = self.scope.var(name).get_selected_rows()
        sparse.set_height(height)
        sparse.set_rows(rows)
        sparse.get_tensor().set(values, fluid.CPUPlace())
        return self.var(name, [height, *values.shape[1:]], kind=VarDesc.VarType.SELECTED_ROWS)

    def dense(self, name, value, lod=None):
        value = np.asarray(value)
        self.feed[name] = fluid.create_lod_tensor(value, lod, fluid.CPUPlace()) if lod else value
        return self.var(name, value.shape, value.dtype, lod_level=len(lod or ()))

    def outs(self, count, **settings):
        return [self.var(f"out_{k}", **settings) for k in range(count)]

    def __call__(self, op_type, inputs, outputs, attrs=None):
        self.block.append_op(type=op_type, inputs=inputs, outputs=outputs, attrs=attrs or {})
        with fluid.scope_guard(self.scope):
            fluid.Executor(fluid.CPUPlace()).run(self.main, feed=self.feed)
        return [self.scope.find_var(var.name) for slot in outputs.values() for var in slot]


def sparse(found):
    found = [var.get_selected_rows() for var in found]
    return [(rows.height(), list(rows.rows()), np.array(rows.get_tensor()).tolist()) for rows in found]


def dense(found):
    return [np.array(var.get_tensor()).tolist() for var in found]


def test_gradients_cut_by_rows():
    run = Run()
    outs = run.outs(2)
    found = run("split_selected_rows", {"X": run.rows("x")}, {"Out": outs}, {"height_sections": [5, 15]})
    first, second = [[2, 3], [4, 5], [8, 9]], [[0, 1], [6, 7]]
    assert sparse(found) == [(5, [3, 3, 0], first), (15, [2, 5], second)]
    assert [(var.type, var.shape) for var in outs] == [
        (VarDesc.VarType.SELECTED_ROWS, (5, 2)),
        (VarDesc.VarType.SELECTED_ROWS, (15, 2)),
    ]


def test_dense_gradients_are_cut_by_another_op():
    run = Run()
    with pytest.raises(fluid.core.EnforceNotMet, match="expects SelectedRows.*split_byref"):
        run("split_selected_rows", {"X": run.dense("x", VALUES)}, {"Out": run.outs(1)}, {"height_sections": [5]})


@pytest.mark.parametrize("attrs", [{"sections": [2, 3]}, {"sections": [2, 3], "num": 0}])
def test_tensors_cut_by_rows(attrs):
    run = Run()
    outs = run.outs(2)
    assert dense(run("split_byref", {"X": run.dense("x", VALUES)}, {"Out": outs}, attrs)) == [
        VALUES[:2].tolist(),
        VALUES[2:].tolist(),
    ]
    assert [var.shape for var in outs] == [(2, 2), (3, 2)]


def test_equal_parts_and_parts_that_do_not_fit():
    run = Run()
    assert dense(run("split_byref", {"X": run.dense("x", VALUES[:4])}, {"Out": run.outs(2)}, {"num": 2})) == [
        VALUES[:2].tolist(),
        VALUES[2:4].tolist(),
    ]
    run = Run()
    with pytest.raises(fluid.core.EnforceNotMet, match="do not add up to the 5 rows"):
        run("split_byref", {"X": run.dense("x", VALUES)}, {"Out": run.outs(2)}, {"sections": [2, 2]})


def test_the_gradient_of_parts_is_the_whole():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [5, 2])
        x.stop_gradient = False
        outs = [main.global_block().create_var(name=f"out_{k}", dtype="float32") for k in range(2)]
        main.global_block().append_op("split_byref", {"X": x}, {"Out": outs}, {"sections": [2, 3]})
        loss = fluid.layers.reduce_sum(outs[0]) + 3 * fluid.layers.reduce_sum(outs[1])
        (grad,) = fluid.gradients(loss, x)
    (found,) = fluid.Executor(fluid.CPUPlace()).run(main, {"x": VALUES}, [grad])
    assert found.tolist() == [[1, 1]] * 2 + [[3, 3]] * 3


def test_the_gradient_of_parts_of_selected_rows_is_their_sum():
    run = Run()
    run.rows("x")
    x = run.var("x", [20, 2], kind=VarDesc.VarType.SELECTED_ROWS)
    outs = [run.var(f"out_{k}", kind=VarDesc.VarType.SELECTED_ROWS) for k in range(2)]
    op = run.block.append_op("split_selected_rows", {"X": x}, {"Out": outs}, {"height_sections": [4, 16]})
    (grad,), _ = fluid.core.get_grad_op_desc(op.desc, set(), [])
    parts = {"X": ["out_0@GRAD", "out_1@GRAD"]}
    assert (grad.type(), grad.inputs(), grad.outputs()) == ("sum", parts, {"Out": ["x@GRAD"]})


def test_ids_dealt_to_servers():
    run = Run()
    ids = [run.dense("a", IDS, [[3, 4]]), run.dense("b", MORE)]
    assert dense(run("split_ids", {"Ids": ids}, {"Out": run.outs(3)})) == [[[0], [3]], [[4], [7], [10]], [[5]]]


def test_rows_dealt_to_servers():
    """1.8.5 gives both rows 3 the values of the last, so that its part of the gradient counts twice."""
    run = Run()
    outs = run.outs(3)
    found = run("split_ids", {"Ids": [run.rows("x")]}, {"Out": outs})
    third, first = [[2, 3], [4, 5], [8, 9]], [[0, 1], [6, 7]]
    assert sparse(found[:2]) == [(20, [3, 3, 0], third), (20, [7, 10], first)]
    assert {var.type for var in outs} == {VarDesc.VarType.SELECTED_ROWS}
    run = Run()
    with pytest.raises(fluid.core.EnforceNotMet, match="expected one SelectedRows"):
        run("split_ids", {"Ids": [run.rows("x"), run.rows("y")]}, {"Out": run.outs(2)})


def test_rows_put_together():
    run = Run()
    parts = [np.array(part, "int64") for part in ([[0], [3]], [[4], [7], [10]], [[5]])]
    rows = [run.dense(f"ids_{k}", part) for k, part in enumerate(parts)]
    x = [run.dense(f"x_{k}", np.hstack([part, 10 * part]).astype("float32")) for k, part in enumerate(parts)]
    ids = [run.dense("a", IDS, [[3, 4]]), run.dense("b", MORE)]
    found = run("merge_ids", {"Ids": ids, "Rows": rows, "X": x}, {"Out": run.outs(2)})
    assert dense(found) == [np.hstack([part, 10 * part]).tolist() for part in (IDS, MORE)]
    assert [var.get_tensor().lod() for var in found] == [[[0, 3, 7]], []]


def test_an_id_without_a_row():
    run = Run()
    one = run.dense("one", np.array([[3]], "int64"))
    x = run.dense("x", np.ones((1, 2), "float32"))
    with pytest.raises(fluid.core.EnforceNotMet, match="no row for id 7"):
        run("merge_ids", {"Ids": [run.dense("a", IDS)], "Rows": [one], "X": [x]}, {"Out": run.outs(1)})


@pytest.mark.parametrize("number", [0, 1])
def test_a_value_by_the_trainers_number(number):
    run = Run()
    x = [run.dense(f"x_{k}", np.full((2, 2), k, "float32")) for k in range(2)]
    trainer = run.dense("trainer", np.array([number], "int64"))
    assert dense(run("ref_by_trainer_id", {"X": x, "TrainerId": trainer}, {"Out": run.outs(1)})) == [[[number] * 2] * 2]


def test_a_number_that_no_trainer_has():
    run = Run()
    x = [run.dense(f"x_{k}", np.full((2, 2), k, "float32")) for k in range(2)]
    with pytest.raises(fluid.core.EnforceNotMet, match="ref_by_trainer_id.*2"):
        run("ref_by_trainer_id", {"X": x, "TrainerId": run.dense("t", np.array([2], "int64"))}, {"Out": run.outs(1)})


def test_a_table_that_takes_no_memory():
    run = Run()
    out = run.var("table", [10**7, 32])
    (found,) = run("fake_init", {}, {"Out": [out]}, {"shape": [10**7, 32]})
    assert found.get_tensor().shape() == [10**7, 32]
    run = Run()
    out = run.var("table", [10**7, 32], kind=VarDesc.VarType.SELECTED_ROWS)
    (found,) = run("fake_init", {}, {"Out": [out]}, {"shape": [10**7, 32]})
    table = found.get_selected_rows()
    assert (table.height(), list(table.rows()), table.get_tensor()._get_dims()) == (0, [], [10**7, 32])
