"""core.Graph and framework.IrGraph: nodes, links, order, and programs of them."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import passes
from fluidjax.core import EnforceNotMet
from fluidjax.framework import IrGraph, IrNode, IrOpNode, IrVarNode
from fluidjax.ir import applied

core, layers, CPU = fluid.core, fluid.layers, fluid.CPUPlace()
KIND = core.VarDesc.VarType


def trained():
    """A net of two layers that is trained; (program, loss)."""
    x, weight = layers.data("x", [4]), fluid.initializer.NumpyArrayInitializer(np.linspace(-1, 2, 12).reshape(4, 3))
    hidden = layers.fc(x, 3, act="relu", param_attr=fluid.ParamAttr(initializer=weight))
    loss = layers.mean(layers.fc(hidden, 3, param_attr=fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5))))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return fluid.default_main_program(), loss


def graph_of(program):
    return IrGraph(core.Graph(program.desc))


def node(graph, name):
    return graph._find_node_by_name(sorted(graph.all_nodes(), key=IrNode.id), name)


# Number, name, inputs and outputs of some nodes, as Paddle 1.8.5 has them for the same net.
RECORDED = [
    (0, "mul", [1, 2], [3, 44]),
    (2, "fc_0.w_0", [], [0, 32, 37]),
    (8, "fc_0.tmp_2", [7], [9, 24, 27]),
    (34, "sgd", [31, 35, 5, 43], [36]),
    (36, "fc_0.b_0", [34], []),
    (43, "__control_var@43", [4], [34]),
    (46, "__control_var@46", [9], [41]),
]
RECORDED_BEFORE = {0: [], 4: [0], 15: [12], 19: [12, 17], 24: [7, 21], 29: [0, 27], 34: [4, 29], 41: [9, 24]}


def test_nodes_are_numbered_and_linked_as_in_paddle():
    program, _ = trained()
    graph = graph_of(program)
    nodes = {n.id(): n for n in graph.all_nodes()}
    assert len(nodes) == 47
    for number, name, inputs, outputs in RECORDED:
        found = nodes[number]
        assert (found.name(), [n.id() for n in found.inputs], [n.id() for n in found.outputs]) == (
            name,
            inputs,
            outputs,
        )
    before = {op.id(): sorted(n.id() for n in ops) for op, ops in graph.build_adjacency_list().items()}
    assert {at: before[at] for at in RECORDED_BEFORE} == RECORDED_BEFORE
    assert [n.name() for n in graph.topology_sort()] == [op.type for op in program.global_block().ops]
    assert (graph.graph_num(), graph.has_circle(), graph.is_test()) == (1, False, False)


def test_a_program_of_a_graph_is_the_program():
    program, _ = trained()
    again = graph_of(program).to_program()
    assert [op.desc.serialize_to_string() for op in again.global_block().ops] == [
        op.desc.serialize_to_string() for op in program.global_block().ops
    ]
    assert {v.name: v.desc.serialize_to_string() for v in again.list_vars()} == {
        v.name: v.desc.serialize_to_string() for v in program.list_vars()
    }


def test_blocks_of_loops_stay():
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    (out,) = layers.while_loop(lambda i: layers.less_than(i, n), lambda i: [layers.increment(i)], [i])
    program = graph_of(fluid.default_main_program()).to_program()
    (found,) = fluid.Executor(CPU).run(program, fetch_list=[out.name])
    assert found == 3


def test_a_clone_is_equal_and_its_own():
    graph = graph_of(trained()[0])
    clone = graph.clone()
    before = clone.to_program().desc.serialize_to_string()
    assert before == graph.to_program().desc.serialize_to_string()
    graph.safe_remove_nodes(graph.all_op_nodes())
    assert clone.to_program().desc.serialize_to_string() == before and not graph.all_op_nodes()


def test_a_graph_runs():
    program, loss = trained()
    exe = fluid.Executor(CPU)
    feed = {"x": np.ones((2, 4), "float32")}
    results = []
    graph = graph_of(program)
    for runs in (program, fluid.CompiledProgram(graph.graph).with_data_parallel(loss.name, places=[CPU])):
        with fluid.scope_guard(fluid.Scope()):
            exe.run(fluid.default_startup_program())
            results.append([exe.run(runs, feed, [loss.name])[0] for _ in range(3)])
    np.testing.assert_allclose(results[0], np.asarray(results[1]).reshape(3, 1), rtol=1e-6)


def test_an_op_is_put_in_between():
    x = layers.data("x", [2, 3], append_batch_size=False)
    y = layers.relu(x)
    graph = graph_of(fluid.default_main_program())
    var, op = node(graph, "x"), node(graph, "relu")
    var, op = IrVarNode(var.node), IrOpNode(op.node)
    less = graph.create_var_node("less", var.type(), var.shape(), var.dtype())
    shift = graph.create_persistable_node("shift", KIND.LOD_TENSOR, [1], KIND.FP32)
    added = graph.create_op_node("elementwise_sub", {"axis": -1}, {"X": var, "Y": [shift]}, {"Out": less})
    graph.link_to(var, added)
    graph.link_to(shift, added)
    graph.link_to(added, less)
    graph.update_input_link(var, less, op)
    assert op.input("X") == ["less"] and [n.name() for n in less.outputs] == ["relu"]
    assert {n.name() for n in graph.all_persistable_nodes()} == {"shift"}
    program = graph.to_program()
    assert [o.type for o in program.global_block().ops] == ["elementwise_sub", "relu"]
    fluid.global_scope().var("shift").get_tensor().set(np.array([2.0], "float32"), CPU)
    (found,) = fluid.Executor(CPU).run(program, {"x": np.full((2, 3), 5.0, "float32")}, [y.name])
    np.testing.assert_array_equal(found, np.full((2, 3), 3.0))


def test_outputs_attributes_and_names_change():
    layers.relu(layers.data("x", [3]))
    graph = graph_of(fluid.default_main_program())
    op = IrOpNode(node(graph, "relu").node)
    (old,) = op.outputs
    new = graph.create_var_node_from_desc(old.var())
    new.set_shape([7])
    graph.update_output_link(old, new, op)
    op.set_attr("out_threshold", 0.5)
    op.rename_output(op.output("Out")[0], "renamed")
    op.set_type("tanh")
    assert (new.shape(), old.inputs, [n.id() for n in new.inputs]) == ([7], [], [op.id()])
    assert (op.op().attr("out_threshold"), op.output_arg_names(), op.name()) == (0.5, ["renamed"], "relu")


def test_writers_wait_for_readers():
    x = layers.data("x", [2, 2], append_batch_size=False)
    y = layers.scale(x, 2.0)
    layers.assign(layers.fill_constant([2, 2], "float32", 9.0), x)
    graph = graph_of(fluid.default_main_program())
    assert sum(n.is_ctrl_var() for n in graph.all_var_nodes()) == 1
    program = graph.to_program()
    (found,) = fluid.Executor(CPU).run(program, {"x": np.ones((2, 2), "float32")}, [y.name])
    np.testing.assert_array_equal(found, np.full((2, 2), 2.0))


def test_circles_and_parts():
    a, b = (layers.relu(layers.data(name, [2])) for name in "ab")
    graph = graph_of(fluid.default_main_program())
    assert graph.graph_num() == 2
    (first, second) = (n for n in graph.topology_sort())
    graph.link_to(IrVarNode(second.outputs[0].node), first)
    assert graph.graph_num() == 1 and not graph.has_circle()
    graph.link_to(IrVarNode(first.outputs[0].node), second)
    assert graph.has_circle()
    with pytest.raises(EnforceNotMet, match="circle"):
        graph.topology_sort()


def test_drawing(tmp_path):
    graph = graph_of(trained()[0])
    graph.draw(str(tmp_path / "new"), "net", [op for op in graph.all_op_nodes() if op.name() == "mul"])
    text = (tmp_path / "new" / "net.dot").read_text()
    assert text.count("fillcolor") == 2 and "label=<sgd>" in text and "__control_var" not in text


def test_persistable_nodes_are_saved_and_loaded(tmp_path):
    program, _ = trained()
    exe, graph = fluid.Executor(CPU), graph_of(program)
    exe.run(fluid.default_startup_program())
    tensor = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
    before = np.array(tensor)
    fluid.io._save_persistable_nodes(exe, str(tmp_path), graph)
    tensor.set(np.zeros_like(before), CPU)
    (tmp_path / "fc_1.b_0").unlink()
    with pytest.warns(UserWarning, match="no file of fc_1.b_0"):
        fluid.io._load_persistable_nodes(exe, str(tmp_path), graph)
    np.testing.assert_array_equal(np.array(tensor), before)


def test_passes_run_over_graphs():
    layers.fc(layers.data("x", [4]), 3, act="relu")
    fluid.Executor(CPU).run(fluid.default_startup_program())
    graph = core.Graph(fluid.default_main_program().desc)
    graph.set_not_owned("__param_scope__", fluid.global_scope())
    core.get_pass("fc_fuse_pass").apply(graph)
    assert [n.name() for n in core.topology_sort(graph)] == ["fc"]
    core.get_pass("mkldnn_placement_pass").apply(graph)  # what XLA does itself changes nothing
    desc = core.ProgramDesc()
    writing = core.get_pass("graph_to_program_pass")
    with pytest.raises(EnforceNotMet, match="Required attribute program"):
        writing.apply(graph)
    writing.set_not_owned("program", desc)
    assert writing.has("program") and writing.type() == "graph_to_program_pass"
    writing.apply(graph)
    assert desc.block(0).op(0).type() == "fc"
    with pytest.raises(EnforceNotMet, match="has not been registered"):
        core.get_pass("no_such_pass")


def test_attributes_of_graphs():
    graph = core.Graph(fluid.Program().desc)
    graph.set("flag", True)
    assert graph.has("flag") and graph.get_bool("flag") is True
    with pytest.raises(EnforceNotMet, match="already set"):
        graph.set("flag", False)
    graph.erase("flag")
    with pytest.raises(EnforceNotMet, match="not registered"):
        graph.get_bool("flag")


def test_what_is_no_node_is_refused():
    graph = graph_of(trained()[0])
    op, var = node(graph, "mul"), node(graph, "x")
    with pytest.raises(AssertionError, match=r"core\.Graph"):
        IrGraph(fluid.default_main_program())
    with pytest.raises(AssertionError, match="variable node"):
        IrVarNode(op.node)
    with pytest.raises(AssertionError, match="operator node"):
        IrOpNode(var.node)
    with pytest.raises(EnforceNotMet, match="expected a variable"):
        op.var()
    graph.safe_remove_nodes(var)
    with pytest.raises(AssertionError, match="must be in the graph nodes"):
        graph.link_to(var, op)
    with pytest.raises(AssertionError, match="Cannot find the target node"):
        graph._find_node_by_name(op.inputs, "x")
    released = graph.graph.release_nodes()
    assert len(released) == 46 and not graph.all_nodes()


def test_what_passes_do_is_listed_among_those_that_scripts_may_ask_for() -> None:
    assert set(applied.APPLIED) == set(passes.APPLIED) <= passes.KNOWN
