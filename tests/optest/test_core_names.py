"""Names below Fluid's layers that its own tests and tools call: native executor and data set, prune, passes, ops."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import core, layers
from fluidjax.layers import device


@pytest.fixture
def net():
    """(main, startup, loss) of a linear regression step."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [2, 3])
        loss = layers.mean(layers.fc(x, 1, param_attr="w"))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup, loss


def types(desc) -> list[str]:
    return [desc.block(0).op(i).type() for i in range(desc.block(0).op_size())]


# The native executor.


def test_native_executor_reads_and_leaves_its_columns(net):
    main, startup, loss = net
    fluid.io.prepend_feed_ops(main, ["x"])
    fluid.io.append_fetch_ops(main, [loss.name, "w"])
    scope, executor = fluid.Scope(), core.Executor(fluid.CPUPlace())
    executor.run(startup.desc, scope, 0, False, True, [])
    before = np.array(scope.find_var("w").get_tensor())
    x = np.arange(6, dtype="float32").reshape(2, 3)
    core.set_feed_variable(scope, fluid.create_lod_tensor(x, [], fluid.CPUPlace()), "feed", 0)
    executor.run(main.desc, scope, 0, True, True, [])
    np.testing.assert_allclose(core.get_fetch_variable(scope, "fetch", 0), [np.mean(x @ before)], rtol=1e-6)
    np.testing.assert_allclose(core.get_fetch_variable(scope, "fetch", 1), before - 0.05 * x.sum(0)[:, None], rtol=1e-5)
    assert scope.find_var(loss.name) is None, "a local scope's variables are dropped"
    context = executor.prepare(main.desc, 0, [], False)
    executor.run_prepared_ctx(context, scope, False, True, False)
    assert scope.find_var(loss.name) is not None
    with pytest.raises(ValueError, match="block 1"):
        executor.prepare(main.desc, 1)


def test_native_executor_makes_variables_where_they_live(net):
    main, _, loss = net
    outer = fluid.Scope()
    inner = outer.new_scope()
    core.Executor(fluid.CPUPlace()).create_variables(main.desc, inner, 0)
    assert outer.find_local_var("w") is not None and inner.find_local_var("w") is None
    assert inner.find_local_var(loss.name) is not None
    with pytest.raises(core.EnforceNotMet, match="column 0"):
        fluid.io.prepend_feed_ops(main, ["x"])
        core.Executor(fluid.CPUPlace()).run(main.desc, fluid.Scope(), 0, True, True, [])


# Descs made smaller.


def test_prune(net):
    main, _, _ = net
    before = types(main.desc)
    desc, origin = core.prune_backward(main.desc)
    assert types(desc) == ["mul", "elementwise_add", "mean"] and origin == {0: 0}
    desc, origin = core.prune(main.desc, set(), [[0, 1]])
    assert types(desc) == ["mul", "elementwise_add"] and origin == {0: 0}
    assert types(main.desc) == before


def test_prune_backward_numbers_the_blocks_that_stay():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [1])
        x.stop_gradient = False
        out = layers.cond(layers.less_than(x, x * 2), lambda: x * 3.0, lambda: x)
        fluid.backward.append_backward(layers.mean(out))
    desc, origin = core.prune_backward(main.desc)
    assert desc.num_blocks() == 3 < main.num_blocks and origin == {0: 0, 1: 1, 2: 2}


# The backward pass in pieces.


def grad_ops(net) -> list:
    main, _, _ = net
    return [core.get_grad_op_desc(op.desc, set(), [])[0] for op in reversed(main.global_block().ops[:3])]


def test_repetitive_outputs_are_added_up():
    make = fluid.backward._create_op_desc_
    descs = [
        make("scale", {"X": ["y@GRAD"]}, {"Out": ["x@GRAD"]}, {}),
        make("scale", {"X": ["z@GRAD"]}, {"Out": ["x@GRAD"]}, {}),
        make("scale", {"X": ["x@GRAD"]}, {"Out": ["w@GRAD"]}, {}),
    ]
    found = fluid.backward._addup_repetitive_outputs_(descs, 0)
    assert found is descs and [d.type() for d in found] == ["scale", "scale", "sum", "scale"]
    parts = ["x@GRAD@RENAME@block0@0", "x@GRAD@RENAME@block0@1"]
    assert [found[0].output("Out"), found[1].output("Out")] == [[part] for part in parts]
    assert found[2].input("X") == parts and found[2].output("Out") == ["x@GRAD"]


def test_branches_without_gradient_are_removed():
    make = fluid.backward._create_op_desc_
    descs = [
        make("scale", {"X": ["y@GRAD"]}, {"Out": ["x@GRAD"]}, {}),
        make("elementwise_add", {"X": ["x@GRAD"], "Y": ["z@GRAD"]}, {"Out": ["w@GRAD"]}, {}),
    ]
    stopped = {"y@GRAD"}
    found = fluid.backward._remove_no_grad_branch_(descs, stopped)
    assert [d.type() for d in found] == ["fill_zeros_like", "elementwise_add"] and stopped == {"y@GRAD", "x@GRAD"}
    assert found[0].input("X") == ["x"] and len(descs) == 2


def test_grad_ops_are_appended_one_pass_at_a_time(net):
    main, _, loss = net
    block = main.global_block()
    forward = block.ops[:3]
    target = fluid.Program().global_block()
    seen, grad_to_var = [], {}
    fluid.backward._append_backward_ops_(
        block, forward, target, {0: set()}, grad_to_var, callbacks=[lambda block, context: seen.append(len(block.ops))]
    )
    assert [op.type for op in target.ops] == ["mean_grad", "elementwise_add_grad", "mul_grad"] and seen == [1, 2, 3]
    assert grad_to_var["w@GRAD"] == "w" and grad_to_var["x@GRAD"] == "x"
    with pytest.raises(ValueError, match="callable"):
        fluid.backward._append_backward_ops_(block, forward, target, {0: set()}, {}, callbacks=[3])


# The registry as lists.


def test_lists_of_the_registry():
    kernels = core._get_all_register_op_kernels()
    assert any("data_type[float]" in k and "CPUPlace" in k for k in kernels["softmax_grad"])
    assert "while" not in kernels and "listen_and_serv" not in kernels
    default = core._get_use_default_grad_op_desc_maker_ops()
    known = "maxout pool2d pool3d reduce_max reduce_min reduce_prod reshape rnn_memory_helper sequence_softmax spp"
    assert {*known.split(), "transpose"} <= set(default) and "mul" not in default and "relu" not in default


# Ops as functions.


def test_core_ops_run_eagerly():
    x = np.array([[-1.0, 2.0], [3.0, -4.0]], "float32")
    with fluid.dygraph.guard():
        var = fluid.dygraph.to_variable(x)
        var.stop_gradient = False
        out = core.ops.elementwise_add(core.ops.relu(var), var, "axis", -1)
        first, second = core.ops.split(out, 2, "num", 2, "axis", 1)
        both = core.ops.concat([second, first], "axis", 1)
        values, indices = core.ops.top_k(both, "k", 1)
        core.ops.mean(both).backward()
        np.testing.assert_array_equal(both.numpy(), (np.maximum(x, 0) + x)[:, ::-1])
        np.testing.assert_array_equal(values.numpy(), [[4.0], [6.0]])
        np.testing.assert_array_equal(var.gradient(), np.where(x > 0, 2, 1) / 4)
        rate, grad = fluid.dygraph.to_variable(np.float32([0.5])), fluid.dygraph.to_variable(np.ones_like(x))
        param = fluid.dygraph.to_variable(x.copy())  # a variable shares its array's memory
        assert core.ops.sgd(param, rate, grad, param) is param
        np.testing.assert_array_equal(param.numpy(), x - 0.5)
        with pytest.raises(TypeError, match="pair up"):
            core.ops.relu(var, "use_cudnn")
        with pytest.raises(AttributeError, match="no op"):
            _ = core.ops.no_such_op
    with pytest.raises(RuntimeError, match="eager mode"):
        core.ops.relu(var)


def test_ends_of_eager_layers():
    utils = fluid.dygraph_utils
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.float32([-1, 2]))
        assert utils._append_activation_in_dygraph(x) is x and utils._append_bias_in_dygraph(x) is x
        np.testing.assert_array_equal(utils._append_activation_in_dygraph(x, "relu").numpy(), [0, 2])
        np.testing.assert_array_equal(utils._append_bias_in_dygraph(x, x, axis=0).numpy(), [-2, 4])
    with pytest.raises(AssertionError, match="imperative mode"):
        utils._append_bias_in_dygraph(x, x)


# Passes.


def passes(**settings) -> list[str]:
    strategy = fluid.BuildStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    return [p.type() for p in strategy._finalize_strategy_and_create_passes().all_passes()]


ALL_REDUCE = [
    "coalesce_grad_tensor_pass", "add_reader_dependency_pass", "all_reduce_mode_multi_devices_pass",
    "fuse_all_reduce_op_pass", "all_reduce_deps_pass", "modify_op_lock_and_record_event_pass",
    "multi_devices_check_pass",
]  # fmt: skip


def test_passes_are_those_of_the_settings():
    assert passes() == ALL_REDUCE
    assert passes(fuse_elewise_add_act_ops=True) == ["fuse_elewise_add_act_pass", *ALL_REDUCE]
    assert passes(fuse_all_optimizer_ops=True)[1:4] == [
        "fuse_adam_op_pass",
        "fuse_sgd_op_pass",
        "fuse_momentum_op_pass",
    ]
    assert passes(reduce_strategy=fluid.BuildStrategy.ReduceStrategy.Reduce) == [
        "add_reader_dependency_pass", "reduce_mode_multi_devices_pass", *ALL_REDUCE[-2:]
    ]  # fmt: skip
    assert passes(async_mode=True)[:3] == ["add_reader_dependency_pass", "async_multi_devices_pass", ALL_REDUCE[4]]
    assert passes(debug_graphviz_path="g")[:3] == ["graph_viz_pass", ALL_REDUCE[0], "graph_viz_pass"]


def test_a_finalized_strategy_stays_and_its_passes_draw(net, tmp_path):
    main, startup, loss = net
    strategy = fluid.BuildStrategy()
    builder = strategy._finalize_strategy_and_create_passes()
    assert strategy._finalize_strategy_and_create_passes() is builder
    with pytest.raises(core.EnforceNotMet, match="finalized"):
        strategy.fuse_bn_act_ops = True
    builder.append_pass("graph_viz_pass").set("graph_viz_path", str(tmp_path / "net.dot"))
    builder.insert_pass(0, "graph_viz_pass")
    builder.remove_pass(0)
    assert [p.type() for p in builder.all_passes()] == [*ALL_REDUCE, "graph_viz_pass"]
    for wrong in (lambda: builder.append_pass("nope"), lambda: builder.remove_pass(9)):
        with pytest.raises(core.EnforceNotMet):
            wrong()
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        compiled = fluid.CompiledProgram(main).with_data_parallel(loss.name, strategy, places=[fluid.CPUPlace()])
        exe.run(compiled, feed={"x": np.ones([2, 3], "float32")}, fetch_list=[loss])
    assert (tmp_path / "net.dot").read_text().startswith("digraph G {")


# Places, graphs, copies of variables.


def test_get_places():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        places = device.get_places(device_count=2)
        with pytest.raises(core.EnforceNotMet, match="TPU"):
            device.get_places(device_type="TPU")
    assert places.type == core.VarDesc.VarType.PLACE_LIST and main.global_block().ops[0].attr("device_type") == "AUTO"
    assert fluid.Executor(fluid.CPUPlace()).run(main) == []


def test_graphviz():
    graph = fluid.graphviz.Graph("t", layout="dot")
    rank = graph.rank_group("same", 2)
    a, b = graph.node('"a"', "op", rank=rank, shape="box"), graph.node('"b"', "arg")
    edge = graph.edge(a, b, color="red")
    lines = graph.code().split("\n")
    assert lines[:3] == ["digraph G {", 'title = "t"', 'layout="dot";'] and lines[-1] == "}"
    assert f"{{rank=same;{a.name}}}" in lines and f'{a.name} -> {b.name} [color="red"]' == str(edge)
    assert str(b) == f'{b.name} [label="b"  ];'


def test_a_network_is_drawn(net, tmp_path):
    main, startup, _ = net
    graph = fluid.net_drawer.draw_graph(startup, main, filename=str(tmp_path / "net.gv"))
    ops = [node for node in graph.nodes if node.name.startswith("op_")]
    assert len(ops) == len(startup.global_block().ops) + len(main.global_block().ops)
    labels = [edge.attrs["label"] for edge in graph.edges]
    assert "Y(w)" in labels and (tmp_path / "net.gv").read_text() == graph.code()


def test_a_variable_is_cloned_to_be_saved():
    main, other = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [2, 3], lod_level=1)
    copy = fluid.io._clone_var_in_block_(other.global_block(), x)
    assert (copy.name, copy.shape, copy.lod_level, copy.persistable) == ("x", (2, 3), 1, True)
    with pytest.raises(AssertionError, match="Variable"):
        fluid.io._clone_var_in_block_(other.global_block(), "x")


# What is called at the end.


def test_functions_are_called_once_at_the_end():
    registrar, called = fluid.multiprocess_utils.CleanupFuncRegistrar, []

    def note():
        called.append(1)

    registrar.register(note)
    registrar.register(note)
    registrar._once(note)
    registrar._once(note)
    assert called == [1]
    with pytest.raises(TypeError, match="callable"):
        registrar.register(3)


def test_files_of_named_tensors(net, tmp_path):
    path, scope, other = str(tmp_path / "a"), fluid.Scope(), fluid.Scope()
    executor = fluid.Executor(fluid.CPUPlace())._default_executor
    w, b = (fluid.layers.create_parameter(shape, "float32", name=name) for name, shape in (("w", [2, 2]), ("b", [2])))
    core._create_loaded_parameter([w, b], scope, executor)
    tensor = scope.find_var("w").get_tensor()
    assert not np.array(tensor).any() and np.array(tensor).shape == (2, 2)
    tensor.set(np.float32([[0, 1], [2, 3]]), fluid.CPUPlace())
    core._create_loaded_parameter([w], scope, executor)
    core._save_static_dict(path, [w, b], scope)
    # As 1.8.5 writes it, but for the bytes in front, which it leaves undefined.
    first = b"NAME" + (1).to_bytes(8, "little") + b"b" + bytes(4) + b"\x04\0\0\0\x08\x05\x10\x02" + bytes(8)
    assert (tmp_path / "a").read_bytes()[256:].startswith(b"TNUM" + (2).to_bytes(8, "little") + first + b"NAME")
    core._load_static_dict(path, [w], other, executor)
    assert np.array(other.find_var("w").get_tensor()).tolist() == [[0, 1], [2, 3]] and other.find_var("b") is None
    with fluid.dygraph.guard():
        loaded = core._load_dygraph_dict(path)
        assert [loaded[name].numpy().tolist() for name in ("b", "w")] == [[0, 0], [[0, 1], [2, 3]]]
        core._save_dygraph_dict(str(tmp_path / "d"), {"key": loaded["w"]})
        assert list(core._load_dygraph_dict(str(tmp_path / "d"))) == ["w"]
    missing = fluid.layers.create_parameter([1], "float32", name="missing")
    for message, call in (
        (r"can't not find vairable \[missing\]", lambda: core._save_static_dict(path, [missing], scope)),
        (r"Can not find \[missing\]", lambda: core._load_static_dict(path, [missing], scope, executor)),
        ("should be a list", lambda: core._load_static_dict(path, {"w": w}, scope, executor)),
        ("File open error", lambda: core._load_dygraph_dict(path + "x")),
        ("is not type of VarBase", lambda: core._save_dygraph_dict(path, {"w": w})),
    ):
        with pytest.raises(core.EnforceNotMet, match=message):
            call()
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-3])
    with pytest.raises(core.EnforceNotMet, match="does not fit in the file"):
        core._load_dygraph_dict(path)
