"""Names that Fluid's modules keep to themselves, which its tests and older scripts call all the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import backward, core, executor, framework, unique_name
from fluidjax.log_helper import get_logger

CPU = fluid.CPUPlace()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()), unique_name.guard():
        yield


def _net() -> tuple[fluid.framework.Variable, fluid.framework.Variable]:
    x = fluid.data("x", [2, 3])
    label = fluid.data("label", [2, 4])
    label.stop_gradient = True
    hidden = fluid.layers.fc(x, 4)
    fluid.layers.scale(hidden, 3.0)  # beside the path
    kept = fluid.layers.dropout(hidden, 0.5)
    return x, fluid.layers.reduce_mean(fluid.layers.square(kept - label))


def test_the_path_of_a_gradient() -> None:
    _, loss = _net()
    block = loss.block
    stopped = backward._get_stop_gradients_(block.program)
    assert stopped == {0: {"x@GRAD", "label@GRAD", "dropout_0.tmp_1@GRAD"}}
    constant = {backward._strip_grad_suffix_(name) for name in stopped[0]}
    path = backward._find_op_path_(block, [loss], [], constant)
    types = [op.type for op in path]
    assert types == ["mul", "elementwise_add", "dropout", "elementwise_sub", "square", "reduce_mean"]
    assert backward._find_no_grad_vars(block, path, [loss], constant) == set()
    assert backward._find_no_grad_vars(block, path[:3], [loss], constant) == {"dropout_0.tmp_0"}
    weight = block.var("fc_0.b_0")
    inner = backward._find_op_path_(block, [loss], [weight], set())
    assert [op.type for op in inner] == types[1:]


def test_sets_of_names() -> None:
    assert [backward._some_in_set_(names, {"b"}) for names in ([], ["a"], ["a", "b"])] == [False, False, True]
    assert [backward._all_in_set_(names, {"b"}) for names in ([], ["a", "b"], ["b"])] == [False, False, True]


def test_descs_outside_of_a_block() -> None:
    desc = backward._create_op_desc_("scale", {"X": [b"x"]}, {"Out": ["y"]}, {"scale": 2.0})
    assert (desc.type(), desc.input("X"), desc.output("Out"), desc.attr("scale")) == ("scale", ["x"], ["y"], 2.0)
    assert (desc.attr("op_role"), desc.attr("op_device")) == (1, "")
    other = backward._create_op_desc_("relu", {"X": ["y"]}, {"Out": ["y"]}, {})
    backward._rename_arg_([desc, (other, 0)], "y", "z", begin_idx=1)
    assert (desc.output("Out"), other.input("X"), other.output("Out")) == (["y"], ["z"], ["z"])


def test_a_gradient_is_declared_as_its_variable() -> None:
    block = fluid.data("x", [2, 3], "float64").block
    for name in ("x@GRAD", "unknown@GRAD"):
        block.create_var(name=name)
        backward._infer_var_data_type_shape_(name, block)
    assert (block.var("x@GRAD").shape, block.var("x@GRAD").dtype) == ((2, 3), core.VarDesc.VarType.FP64)
    assert block.var("unknown@GRAD").dtype == core.VarDesc.VarType.FP32
    with pytest.raises(ValueError, match="declares no variable 'no@GRAD'"):
        backward._infer_var_data_type_shape_("no@GRAD", block)


def _fed(rows: int, columns: int, dtype: str = "float32") -> core.LoDTensor:
    return fluid.create_lod_tensor(np.zeros((rows, columns), dtype), [], CPU)


def test_what_is_fed_is_held_against_its_variable() -> None:
    x, loose = fluid.data("x", [4, 3]), fluid.layers.data("y", [3])
    assert executor.check_feed_shape_type(x, _fed(4, 3))
    assert executor.check_feed_shape_type(x, _fed(8, 3), num_places=2)
    assert executor.check_feed_shape_type(loose, _fed(2, 7, "int32"))
    wrong = r"'x' should have dimensions = 2, shape = \(4, 3\), but received fed shape \[5, 3\] on each device"
    with pytest.raises(ValueError, match=wrong):
        executor.check_feed_shape_type(x, _fed(9, 3), num_places=2)
    with pytest.raises(ValueError, match="The data type of fed Variable 'x' must be 'float32', but received 'int32'"):
        executor.check_feed_shape_type(x, _fed(4, 3, "int32"))
    pairs = [((2, -1), (2, 5)), ((None, 3), [7, 3]), ((2,), (2, 1)), ((2, 3), (2, 4))]
    assert [executor.dimension_is_compatible_with(*pair) for pair in pairs] == [True, True, False, False]


def test_what_a_run_is_remembered_by() -> None:
    x, program = fluid.data("x", [4, 3]), fluid.default_main_program()
    key = executor._get_strong_program_cache_key(program, {"a": 1}, [x, "b"])
    assert key == f"{id(program)}['a', 'x', 'b']"
    assert executor._get_strong_program_cache_key(program, [{"a": 1}, {"a": 2}], [])[-10:] == "['a', 'a']"
    assert key != executor._get_strong_program_cache_key(fluid.Program(), {"a": 1}, [x, "b"])


def test_variables_that_an_op_is_to_write() -> None:
    assert framework._dygraph_tracer_ is None
    assert framework.core is core
    with fluid.dygraph.guard():
        tracer = framework._dygraph_tracer_
        assert tracer is framework._dygraph_tracer()
        out = framework._varbase_creator(name="out", shape=[2, 3], dtype="int32")
        assert (out.name, out.shape, out.dtype) == ("out", [2, 3], core.VarDesc.VarType.INT32)
        assert (out.persistable, out.stop_gradient) == (False, True)
        rows = fluid.dygraph.to_variable(np.array([1.5, 2.0], "float32"))
        tracer.trace_op("scale", {"X": rows}, {"Out": out}, {"scale": 2.0})
        np.testing.assert_array_equal(out.numpy(), [3.0, 4.0])
        assert framework._varbase_creator(persistable=True).dtype == core.VarDesc.VarType.FP32


def test_a_logger_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    logger = get_logger("fluidjax.tests.own", logging.INFO, fmt="%(levelname)s: %(message)s")
    logger.info("ready")
    logger.debug("not written")
    assert capsys.readouterr().err == "INFO: ready\n"
    assert not logger.propagate


def test_a_dry_run_computes_nothing() -> None:
    """Feeds and names of fetches are checked; there is nothing to fetch."""
    strategy, rows = fluid.ExecutionStrategy(), np.ones((4, 3), "float32")
    assert strategy._dry_run is False
    strategy._dry_run = True
    count = fluid.layers.create_global_var([1], 1.0, "float32", persistable=True)
    y = fluid.layers.elementwise_mul(fluid.data("x", [None, 3]), fluid.layers.increment(count))
    executor, main = fluid.Executor(CPU), fluid.default_main_program()
    executor.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(main).with_data_parallel(exec_strategy=strategy, places=[CPU, CPU])

    def run(x: np.ndarray, fetch: object = y, **options: bool) -> object:
        return executor.run(program, {"x": x}, [fetch], **options)[0]

    assert run(rows) is None and run(rows, return_merged=False) == []
    assert not run(rows, return_numpy=False)._is_initialized()
    assert np.array(fluid.global_scope().find_var(count.name).get_tensor()) == [1]
    with pytest.raises(fluid.core.EnforceNotMet, match="'nowhere' has no value"):
        run(rows, "nowhere")
    with pytest.raises(ValueError, match="received fed shape \\[2, 2\\] on each device"):
        run(rows[:, :2])


def _run(out: fluid.framework.Variable, **options: bool) -> list:
    return fluid.Executor(CPU).run(fetch_list=[out], **options)


def test_a_choice_of_nothing_is_its_default() -> None:
    def two() -> fluid.framework.Variable:
        return fluid.layers.fill_constant([1], "float32", 2.0)

    index = fluid.layers.fill_constant([1], "int32", 0)
    for out in (fluid.layers.case([], two), fluid.layers.switch_case(index, {}, two)):
        np.testing.assert_array_equal(_run(out)[0], [2.0])
    with pytest.raises(ValueError, match="case: pred_fn_pairs is empty, and there is no default"):
        fluid.layers.case([])
    with pytest.raises(ValueError, match="switch_case: branch_fns is empty, and there is no default"):
        fluid.layers.switch_case(index, [])


def test_a_fetched_array_is_a_list() -> None:
    index = fluid.layers.zeros([1], "int64")
    array = fluid.layers.array_write(fluid.layers.fill_constant([2], "float32", 2.0), index)
    (fetched,) = _run(array, return_numpy=False)
    assert type(fetched) is list
    assert [type(item) for item in fetched] == [core.LoDTensor]
    np.testing.assert_array_equal(np.array(fetched[0]), [2.0, 2.0])


def test_private_flags_are_not_for_scripts() -> None:
    with pytest.raises(ValueError, match="Flag FLAGS_free_idle_chunk cannot get its value through this function"):
        fluid.get_flags("FLAGS_free_idle_chunk")
    with pytest.raises(ValueError, match="Flag FLAGS_use_mkldnn cannot set its value through this function"):
        fluid.set_flags({"FLAGS_use_mkldnn": True})
    assert core.globals()["FLAGS_use_mkldnn"] is False


def test_a_queue_in_a_scope() -> None:
    var = fluid.global_scope().var("queue")
    queue = core.init_lod_tensor_blocking_queue(var, 2, False)
    assert isinstance(queue, core.LoDTensorBlockingQueue)
    batch = core.LoDTensorArray()
    batch.append(_fed(2, 3))
    assert queue.push(batch)
    assert (queue.size(), queue.capacity(), queue.wait_for_inited()) == (1, 2, True)
    queue.close()
    assert not queue.push(batch)
    assert queue.size() == 1
    with pytest.raises(core.EnforceNotMet, match="can only be called once"):
        core.init_lod_tensor_blocking_queue(var, 2, False)


def test_an_array_fetched_over_devices_is_a_list_too() -> None:
    rows = fluid.data("rows", [-1, 2])
    array = fluid.layers.array_write(rows * 2.0, fluid.layers.zeros([1], "int64"))
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=[CPU, CPU])
    fed = np.arange(8, dtype="float32").reshape(4, 2)
    (fetched,) = fluid.Executor(CPU).run(program, feed={"rows": fed}, fetch_list=[array], return_numpy=False)
    assert type(fetched) is list
    np.testing.assert_array_equal(np.array(fetched[0]), fed * 2.0)


def test_the_program_that_is_meant() -> None:
    meant, program = fluid.io._get_valid_program, fluid.Program()
    assert meant(None) is fluid.default_main_program()
    assert meant(program) is meant(fluid.CompiledProgram(program)) is program
    with pytest.raises(TypeError, match="main_program is no program"):
        meant("program")
