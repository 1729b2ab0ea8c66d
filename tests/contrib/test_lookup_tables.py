"""Programs whose embedding table was spread over parameter servers: converted, loaded, run."""

from types import SimpleNamespace

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.contrib import (
    convert_dist_to_sparse_program,
    load_persistables_for_increment,
    load_persistables_for_inference,
)
from fluidjax.contrib.utils import lookup_table_utils
from fluidjax.files.errors import FileFormatError, MismatchError
from fluidjax.files.tensor import DenseValue, RowsValue, encode

HEIGHT, WIDTH = 10, 3


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(bytes(chunk) for chunk in encode(value)))


def add_op(block, op_type, inputs, outputs):
    """An op that only parameter servers know, as a loaded trainer program has it."""
    op = block.proto.ops.add(type=op_type)
    for kind, slots in ((op.inputs, inputs), (op.outputs, outputs)):
        for slot, names in slots.items():
            kind.add(parameter=slot, arguments=names)


def trainer_program():
    """Two lookups in one distributed table and a weight: the sum of both embeddings, weighted."""
    main = fluid.Program()
    block = main.global_block()
    with fluid.program_guard(main, fluid.Program()):
        ids = [fluid.data(name, [-1, 1], "int64") for name in ("left", "right")]
        block.create_var(name="table", shape=[HEIGHT, WIDTH], dtype="float32", persistable=True)
        block.create_var(name="weight", shape=[WIDTH], dtype="float32", persistable=True)
        for name in ("left.emb", "right.emb", "sum", "out", "asked", "answered"):
            block.create_var(name=name, shape=[-1, WIDTH], dtype="float32")
    add_op(block, "split_ids", {"Ids": [v.name for v in ids]}, {"Out": ["asked"]})
    add_op(block, "prefetch", {"X": ["asked"]}, {"Out": ["answered"]})
    add_op(block, "merge_ids", {"X": ["answered"], "Ids": ["left", "right"]}, {"Out": ["left.emb", "right.emb"]})
    main = fluid.Program.parse_from_string(main.desc.serialize_to_string())
    block = main.global_block()
    block.append_op("sum", {"X": ["left.emb", "right.emb"]}, {"Out": ["sum"]})
    block.append_op("elementwise_mul", {"X": ["sum"], "Y": ["weight"]}, {"Out": ["out"]})
    main._distributed_lookup_table = "table"
    return main


@pytest.fixture
def saved(tmp_path, rng):
    """(folder of a model with its table in two parts, the table)."""
    table = rng.standard_normal((HEIGHT, WIDTH)).astype(np.float32)
    for i in range(2):
        write(tmp_path / f"__lookup_table__/table_{i}", RowsValue(table[i::2], list(range(i, HEIGHT, 2)), HEIGHT))
    write(tmp_path / "weight", DenseValue(np.array([1, 2, 3], np.float32)))
    return tmp_path, table


def test_a_trainer_program_runs_in_one_place(saved):
    folder, table = saved
    main = trainer_program()
    assert convert_dist_to_sparse_program(main) is main
    assert [op.type for op in main.global_block().ops] == ["lookup_table", "lookup_table", "sum", "elementwise_mul"]
    assert "table.origin" in main.global_block().vars
    exe = fluid.Executor(fluid.CPUPlace())
    left, right = np.array([[1], [4]]), np.array([[9], [4]])
    with fluid.scope_guard(fluid.Scope()):
        assert load_persistables_for_inference(str(folder), exe, main, "table") is main
        (out,) = exe.run(main, feed={"left": left, "right": right}, fetch_list=["out"])
    np.testing.assert_allclose(out, (table[left[:, 0]] + table[right[:, 0]]) * [1, 2, 3], rtol=1e-6)
    assert (folder / "__lookup_table__" / "table").exists()


def test_programs_that_cannot_be_converted(caplog):
    assert convert_dist_to_sparse_program(fluid.Program()) is None
    assert "no distributed lookup table" in caplog.text
    main = fluid.Program()
    main._distributed_lookup_table = "table"
    with pytest.raises(ValueError, match="split_ids"):
        convert_dist_to_sparse_program(main)


def test_the_program_may_come_from_the_folder(saved):
    folder, table = saved
    main = fluid.Program()
    block = main.global_block()
    block.create_var(name="table", shape=[HEIGHT, WIDTH], dtype="float32", persistable=True)
    (folder / "__model__").write_bytes(main.desc.serialize_to_string())
    with fluid.scope_guard(fluid.Scope()):
        program = load_persistables_for_inference(str(folder), None, None, "table")
        rows = fluid.global_scope().find_var("table").get_selected_rows()
        np.testing.assert_array_equal(np.array(rows.get_tensor())[np.argsort(rows.rows())], table)
    assert program.global_block().has_var("table")


def pserver_program():
    """What a server at "here" holds: rows 2 and 3 of ``sliced``, all of ``whole``, part of the table."""
    program = fluid.Program()
    block = program.global_block()
    made = {
        name: block.create_var(name=name, shape=shape, dtype="float32", persistable=True)
        for name, shape in {"sliced": [6, 2], "sliced.block1": [2, 2], "whole": [4]}.items()
    }
    kind = fluid.core.VarDesc.VarType.SELECTED_ROWS
    block.create_var(name="table", shape=[HEIGHT, WIDTH], dtype="float32", type=kind, persistable=True)
    parts = [
        SimpleNamespace(origin=made["sliced"], slice=made["sliced.block1"], is_slice=True, offset=4),
        SimpleNamespace(origin=made["whole"], slice=made["whole"], is_slice=False, offset=0),
    ]
    program._ps_endpoint = "here"
    program._parameters_on_pservers = SimpleNamespace(get_distributed_vars_by_ep=lambda ep: {"here": parts}[ep])
    return program


def test_a_server_loads_its_slices(saved):
    folder, table = saved
    write(folder / "sliced", DenseValue(np.arange(12, dtype=np.float32).reshape(6, 2)))
    write(folder / "whole", DenseValue(np.arange(4, dtype=np.float32)))
    part = str(folder / "__lookup_table__" / "table_1")
    with fluid.scope_guard(fluid.Scope()):
        load_persistables_for_increment(str(folder), None, pserver_program(), "table", part)
        scope = fluid.global_scope()
        assert np.array(scope.find_var("sliced.block1").get_tensor()).tolist() == [[4, 5], [6, 7]]
        assert np.array(scope.find_var("whole").get_tensor()).tolist() == [0, 1, 2, 3]
        rows = scope.find_var("table").get_selected_rows()
        assert rows.rows() == [1, 3, 5, 7, 9] and rows.height() == HEIGHT
        np.testing.assert_array_equal(np.array(rows.get_tensor()), table[1::2])


def test_arguments_that_do_not_fit(saved):
    folder, _ = saved
    part = str(folder / "weight")
    for given, message in [
        (("nowhere", None, fluid.Program(), "table", part), "expected: a folder"),
        ((str(folder), None, fluid.Program(), "table", "nowhere"), "expected: a file"),
        ((str(folder), None, "program", "table", part), "is no program"),
        ((str(folder), None, fluid.Program(), "table", part), "not one of a parameter server"),
    ]:
        with pytest.raises(ValueError, match=message):
            load_persistables_for_increment(*given)
    with pytest.raises(ValueError, match="expected: a folder"):
        load_persistables_for_inference("nowhere", None, None, "table")


def test_tables_that_do_not_fit(saved):
    folder, table = saved
    main = trainer_program()
    with pytest.raises(FileNotFoundError, match="other_0"):
        load_persistables_for_inference(str(folder), None, main, "other")
    write(folder / "__lookup_table__/table_2", RowsValue(table[:1], [0], HEIGHT))
    with pytest.raises(FileFormatError, match="1 rows twice"):
        load_persistables_for_inference(str(folder), None, main, "table")
    for i in range(3):
        (folder / f"__lookup_table__/table_{i}").unlink()
    write(folder / "__lookup_table__/table_0", RowsValue(table[:, :2], list(range(HEIGHT)), HEIGHT))
    with fluid.scope_guard(fluid.Scope()):
        with pytest.raises(MismatchError, match="shape of 'table'"):
            load_persistables_for_inference(str(folder), None, main, "table")
        assert fluid.global_scope().find_var("weight") is None


def test_the_part_for_inference(rng):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids, label = fluid.data("ids", [None, 1], "int64"), fluid.data("label", [None, 1])
        score = fluid.layers.fc(fluid.embedding(ids, [5, 3], is_sparse=True), 1)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(score, label))
        fluid.optimizer.SGD(0.1).minimize(loss)
    model = lookup_table_utils.get_inference_model(main, ["ids"], [score])
    types = [op.type for op in model.global_block().ops]
    assert types == ["feed", "lookup_table_v2", "mul", "elementwise_add", "fetch"]
    assert main.global_block().ops[-1].type == "sgd"
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        fed = {"ids": rng.integers(0, 5, (4, 1)), "label": np.zeros((4, 1), "float32")}
        (alone,) = exe.run(model, feed={"ids": fed["ids"]}, fetch_list=[score])
        (trained,) = exe.run(main, feed=fed, fetch_list=[score])
    np.testing.assert_array_equal(alone, trained)


def test_a_feed_that_the_targets_do_not_depend_on():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 2])
        out = fluid.layers.scale(x, 2.0)
        fluid.layers.scale(y, 2.0)
    with pytest.raises(ValueError, match="var y not in this block"):
        lookup_table_utils.get_inference_model(main, ["y"], [out])
