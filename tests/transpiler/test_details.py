"""The tools of the transpilers."""

import io
import socket
import time

import pytest

import fluidjax as fluid
from fluidjax import distribute_lookup_table as tables
from fluidjax.transpiler import details


def test_waiting_for_servers(monkeypatch, caplog):
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    endpoint = f"127.0.0.1:{server.getsockname()[1]}"
    slept = []

    def listen_at_last(seconds):
        slept.append(seconds)
        if seconds > 1:
            server.listen()

    monkeypatch.setattr(time, "sleep", listen_at_last)
    with server:
        details.wait_server_ready([endpoint])
        details.wait_server_ready([endpoint, endpoint])
    assert slept == [0.1, 0.2, 0.4, 0.8, 1.6] and f"not listening yet: {endpoint}" in caplog.text
    with pytest.raises(AssertionError, match="expected a list"):
        details.wait_server_ready(endpoint)


def test_sets_that_are_joined():
    sets = details.UnionFind(["a", "b", "c", "d"])
    sets.union("a", "b")
    sets.union("b", "c")
    sets.union("c", "a")
    assert sets.is_connected("a", "c") and not sets.is_connected("a", "d") and sets.find("e") == -1
    assert details.UnionFind().find("a") == -1


@pytest.fixture
def program():
    """x -> scale -> y -> scale -> y."""
    program = fluid.Program()
    block = program.global_block()
    x = block.create_var(name="x", shape=[2, 3], dtype="float32")
    y = block.create_var(name="y", shape=[2, 3], dtype="float32", persistable=True)
    block.append_op("scale", {"X": x}, {"Out": y}, {"scale": 2.0})
    block.append_op("scale", {"X": y}, {"Out": y}, {"scale": 3.0})
    return program


def test_finding_and_dropping_ops(program):
    block = program.global_block()
    assert [details.find_op_by_input_arg(block, name) for name in "xyz"] == [0, 1, -1]
    assert [details.find_op_by_output_arg(block, name) for name in "xy"] == [-1, 0]
    assert details.find_op_by_output_arg(block, "y", reverse=True) == 1
    first, second = block.ops
    details.delete_ops(block, [first])
    details.delete_ops(block, [first])
    assert block.ops == [second]


def test_programs_as_text(program):
    program.global_block().create_var(name="raw", type=fluid.core.VarDesc.VarType.RAW)
    program.global_block().create_parameter(name="w", shape=[4], dtype="float32")
    program._create_block()
    program._rollback()
    block = program.global_block().create_var(name="out", shape=[1], dtype="bool")
    program.global_block().append_op("listen_and_serv", {"X": [block]}, {}, {"optimize_blocks": [program.block(1)]})
    out = io.StringIO()
    details.program_to_code(program, fout=out)
    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert lines[0] == "{ // block 0" and lines[-2:] == ["{ // block 1", "}"]
    assert "var x : fluid.VarType.LOD_TENSOR.shape(2, 3).astype(VarType.FP32)" in lines
    assert "var raw : fluid.VarType.RAW" in lines
    assert "persist trainable parameter w : fluid.VarType.LOD_TENSOR.shape(4,).astype(VarType.FP32)" in lines
    scale = next(line for line in lines if "scale = 2.0" in line)
    assert scale.startswith("{Out=['y']} = scale(inputs={") and "X=['x']" in scale and "op_callstack" not in scale
    assert any("optimize_blocks = blocks[1]" in line for line in lines)
    assert "op_callstack" in details.op_to_code(program.global_block().ops[0], skip_op_callstack=False)


def test_what_is_where():
    found = details.VarsDistributed()
    block = fluid.Program().global_block()
    whole = block.create_var(name="w", shape=[4, 2], dtype="float32")
    parts = [details.VarStruct(f"w.block{k}", (2, 2), whole.dtype, whole.type, 0, False) for k in range(2)]
    for k, part in enumerate(parts):
        found.add_distributed_var(whole, part, block_id=k, offset=4 * k, vtype="Param", endpoint=f"server {k}")
    found.add_distributed_var(whole, whole, vtype="Optimizer", endpoint="server 0")
    first, second, third = found.distributed_vars
    assert (first.is_slice, second.is_slice, third.is_slice, third.offset) == (True, True, False, 0)
    assert found.get_distributed_var_by_slice("w.block1") is second
    assert found.get_distributed_var_by_slice("v") is None
    assert found.get_distributed_var_by_origin_and_ep("w", "server 1") is second
    assert found.get_distributed_vars_by_ep("server 0") == [first, third]
    assert found.get_distributed_vars_by_ep("server 0", "Optimizer") == [third]
    assert found.get_distributed_vars_by_vtypes(["Param"]) == [first, second]
    assert found.get_distributed_vars_by_vtypes(["Param"], groupby=True) == {"w": [first, second]}
    assert not found.equal(whole, parts[0]) and found.equal(whole, whole)
    assert found.overview().count("\n") == 2 and "w.block1" in found.overview()


def test_what_a_distributed_table_is_used_for():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        ids = [fluid.data(name, [None, 1], "int64") for name in ("a", "b")]
        rows = [fluid.layers.embedding(i, [9, 4], is_distributed=True, param_attr="table") for i in ids]
        fluid.layers.embedding(ids[0], [9, 4], param_attr="other")
    assert tables.find_distributed_lookup_table(program) == "table"
    assert tables.find_distributed_lookup_table(fluid.Program()) is None
    assert tables.find_distributed_lookup_table_inputs(program, "table") == ids
    assert [var.name for var in tables.find_distributed_lookup_table_outputs(program, "table")] == [
        row.name for row in rows
    ]


def test_names_of_the_transpilers_modules():
    """As 1.8.5 has them."""
    from fluidjax.transpiler import distribute_transpiler, geo_sgd_transpiler

    found = {name: getattr(distribute_transpiler, name) for name in dir(distribute_transpiler) if name.isupper()}
    assert {name: int(v) for name, v in found.items() if name.endswith("ATTR_VALUE")} == {
        "DIST_OP_ROLE_ATTR_VALUE": 8, "LR_SCHED_OP_ROLE_ATTR_VALUE": 16, "OPT_OP_ROLE_ATTR_VALUE": 2,
        "RPC_OP_ROLE_ATTR_VALUE": 4,
    }  # fmt: skip
    assert found["LOOKUP_TABLE_GRAD_TYPE"] == [f"{kind}_grad" for kind in found["LOOKUP_TABLE_TYPE"]]
    assert (found["OP_NAME_SCOPE"], found["CLIP_OP_NAME_SCOPE"]) == ("op_namescope", "@CLIP")
    assert found["OP_ROLE_VAR_ATTR_NAME"] == "op_role_var" and geo_sgd_transpiler.op_role_attr_name == "op_role"
    assert geo_sgd_transpiler.RoundRobin is distribute_transpiler.RoundRobin
    assert details.get_indent_space(2) == 8 * " "


def test_steps_are_printed_where_asked(monkeypatch, capsys):
    from fluidjax.transpiler import distribute_transpiler

    monkeypatch.setattr(distribute_transpiler, "PRINT_LOG", False)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [2, 2]), 1, param_attr="w", bias_attr=False))
        fluid.optimizer.SGD(0.1).minimize(loss)
    for printed in (False, True):
        config = fluid.DistributeTranspilerConfig()
        config.print_log = printed
        transpiler = fluid.DistributeTranspiler(config)
        transpiler.transpile(0, main.clone(), "127.0.0.1:6174", 2, startup_program=startup.clone())
        transpiler.get_pserver_program("127.0.0.1:6174")
        lines = capsys.readouterr().out.splitlines()
        assert bool(lines) == printed
    assert lines[0] == "('adding param_grad pair: ', 'w', 'w@GRAD')" and "('append opt op: ', 'sgd'" in lines[-1]
