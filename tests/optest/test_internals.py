"""What framework tests and older scripts call of Fluid's insides."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import core, unique_name
from fluidjax.backward import _append_grad_suffix_, _as_list, _strip_grad_suffix_
from fluidjax.base.flags import FLAGS
from fluidjax.executor import FetchHandler, _as_lodtensor, as_numpy
from fluidjax.layers.ops import _scale
from fluidjax.optimizer import append_gradient_clip_ops, append_regularization_ops
from fluidjax.readers.generator import GeneratorLoader

CPU = fluid.CPUPlace()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()), unique_name.guard():
        yield


def _tensor(rows: Any, lengths: Any = None) -> core.LoDTensor:
    tensor = core.LoDTensor()
    tensor.set(np.asarray(rows), CPU)
    if lengths is not None:
        tensor.set_recursive_sequence_lengths(lengths)
    return tensor


def test_walking_down_the_gradients_of_an_op_ends() -> None:
    """As OpTest's check of ops in place does: from an op to its gradient's op, while there is a maker."""
    found, op_type = [], "relu"
    program = fluid.Program()
    block = program.global_block()
    block.create_var(name="x", shape=[2, 3], dtype="float32")
    block.create_var(name="out", shape=[2, 3], dtype="float32")
    desc = block.append_op(type=op_type, inputs={"X": ["x"]}, outputs={"Out": ["out"]}).desc
    while core.has_grad_op_maker(desc.type()):
        (desc,), _ = core.get_grad_op_desc(desc, set(), [])
        found.append(desc.type())
    assert found[0] == "relu_grad"
    assert len(found) <= 2
    assert not core.has_grad_op_maker("no_such_op")


def test_ops_without_gradients_have_makers_of_nothing() -> None:
    for op_type in ("shape", "sgd", "equal", "where_index"):
        assert core.has_grad_op_maker(op_type) and not core.has_non_empty_grad_op_maker(op_type)
        desc = fluid.Program().global_block().desc.append_op()
        desc.set_type(op_type)
        assert core.get_grad_op_desc(desc, set(), []) == ([], {})
    assert not core.has_grad_op_maker("save")
    assert core.has_non_empty_grad_op_maker("mul")


def test_names_of_gradients() -> None:
    assert _append_grad_suffix_("x") == "x@GRAD"
    assert [_strip_grad_suffix_(n) for n in ("x@GRAD@GRAD", "x@GRAD@RENAME@0", "x")] == ["x", "x", "x"]
    assert [_as_list(v) for v in (None, (1, 2), [1], 3)] == [[], [1, 2], [1], [3]]


def test_switches_are_kept_as_flags() -> None:
    before = dict(FLAGS)
    try:
        core._set_eager_deletion_mode(-1.0, 0.5, False)
        core._set_fuse_parameter_group_size(3)
        core._set_fuse_parameter_memory_size(16.5)
        core.set_num_threads(2)
        names = ("eager_delete_tensor_gb", "memory_fraction_of_eager_deletion", "fast_eager_deletion_mode")
        assert [core.globals()[f"FLAGS_{n}"] for n in names] == [-1.0, 0.5, False]
        names = ("fuse_parameter_groups_size", "fuse_parameter_memory_size", "paddle_num_threads")
        assert [core.globals()[f"FLAGS_{n}"] for n in names] == [3, 16.5, 2]
    finally:
        FLAGS.update(before)


def test_tensors_from_python_and_back() -> None:
    assert _as_lodtensor(3, CPU, "float32").shape() == [1]
    assert np.array(_as_lodtensor((1, 2), CPU)).dtype == np.int64
    assert as_numpy(core.LoDTensor()) is None
    np.testing.assert_array_equal(as_numpy([_tensor([1.0])])[0], [1.0])
    with pytest.raises(AssertionError, match="dtype should be given when casting python scalar"):
        _as_lodtensor(3, CPU)
    with pytest.raises(RuntimeError, match="feed data hold LoD information"):
        _as_lodtensor([1, 2], CPU)
    with pytest.raises(RuntimeError, match="fetched tensors hold LoD information"):
        as_numpy(_tensor([[1.0], [2.0], [3.0]], [[1, 2]]))
    with pytest.raises(TypeError, match="expected a LoDTensor"):
        as_numpy(3)


def test_a_fetch_handler_looks_at_its_variables(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "part").write_text("1 4\n1 5\n1 6\n")
    x = fluid.data("x", [None, 1], "int64")
    doubled = fluid.layers.scale(x, 2.0)
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_use_var([x])
    dataset.set_batch_size(1)
    dataset.set_filelist([str(tmp_path / "part")])
    seen = []

    class Watch(FetchHandler):
        def handler(self, res_dict: Any) -> None:
            seen.append(int(res_dict["twice"][0, 0]))

    exe = fluid.Executor(CPU)
    exe.train_from_dataset(fluid.default_main_program(), dataset, fetch_handler=Watch({"twice": doubled}, 0))
    assert seen == [8, 10, 12]
    FetchHandler({"a": x}).handler({"a": np.ones(2)})
    assert capsys.readouterr().out == "a[0]: 1.0 \n"
    with pytest.raises(AssertionError, match="var_dict is None"):
        FetchHandler()


def test_an_executor_prunes_by_feeds_and_fetches() -> None:
    x = fluid.data("x", [None, 2])
    wanted, other = fluid.layers.tanh(x), fluid.layers.relu(x)
    program = fluid.default_main_program()
    pruned = fluid.Executor(CPU)._prune_program(program, {"x": np.ones((1, 2))}, [wanted])
    assert [op.type for op in pruned.global_block().ops] == ["tanh"]
    assert len(program.global_block().ops) == 2
    assert other.name in program.global_block().vars


def test_compiling_and_dropping_scopes() -> None:
    x = fluid.data("x", [2, 2])
    loss = fluid.layers.mean(fluid.layers.scale(x, 2.0))
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss.name, places=CPU)
    assert compiled._compile(fluid.global_scope(), CPU) is compiled
    parallel = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name)
    parallel.run([loss.name], feed={"x": np.ones((2, 2), "float32")})
    assert not parallel._need_create_local_exe_scopes()
    parallel.drop_local_exe_scopes()
    assert parallel._need_create_local_exe_scopes()


@pytest.mark.parametrize("devices", [1, 2])
def test_a_compiled_program_stays_in_its_scope(devices: int) -> None:
    out = fluid.layers.scale(fluid.data("x", [2, 2]), 2.0)
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    if devices > 1:
        compiled = compiled.with_data_parallel(places=[CPU] * devices)
    compiled._compile(fluid.global_scope(), CPU)
    with pytest.raises(ValueError, match="different scope"):
        compiled._compile(core.Scope(), CPU)
    with pytest.raises(ValueError, match="different scope"):
        fluid.Executor(CPU).run(compiled, {"x": np.ones((2, 2), "float32")}, [out], scope=core.Scope())


def test_a_run_waits_for_the_thread_that_fills_the_queue() -> None:
    reader = fluid.layers.py_reader(2, [[-1, 3]], ["float32"], use_double_buffer=False)
    x = fluid.layers.read_file(reader)
    running = threading.Event()

    def push() -> None:
        running.wait()
        time.sleep(0.2)
        batch = core.LoDTensorArray()
        batch.append(_tensor(np.ones((2, 3), "float32")))
        reader.queue.push(batch)

    thread = threading.Thread(target=push)
    thread.start()
    exe = fluid.Executor(CPU)
    exe.run(fluid.default_startup_program())
    running.set()
    np.testing.assert_array_equal(exe.run(fetch_list=[x])[0], np.ones((2, 3)))
    thread.join()


def test_a_py_reader_tells_its_thread() -> None:
    reader = fluid.layers.py_reader(2, [[-1, 3]], ["float32"], use_double_buffer=False)
    assert (reader.thread, reader.exited) == (None, False)
    seen = []

    def batches():
        yield [np.zeros((1, 3), "float32")]
        seen.append((threading.current_thread(), reader.exited))

    reader.decorate_batch_generator(batches)
    reader.start()
    reader.thread.join()
    reader.reset()
    assert (seen, reader.thread.is_alive(), reader.exited) == ([(reader.thread, False)], False, False)


def test_ops_that_were_made_through_descs_run() -> None:
    x = fluid.data("x", [2, 2])
    out = fluid.layers.scale(x, 3.0)
    block = fluid.default_main_program().global_block()
    (gradient,), _ = core.get_grad_op_desc(out.op.desc, set(), [])
    block.desc.append_op().copy_from(gradient)
    for name in ("x@GRAD", out.name + "@GRAD"):
        block.desc.var(name).set_dtype(core.VarDesc.VarType.FP32)
    assert (block.desc.op_size(), len(block.ops), block.has_var("x@GRAD")) == (2, 1, False)
    exe, ones = fluid.Executor(CPU), np.ones((2, 2), "float32")
    (found,) = exe.run(feed={"x": ones, out.name + "@GRAD": 2 * ones}, fetch_list=["x@GRAD"])
    np.testing.assert_array_equal(found, 6 * ones)
    block.desc._remove_op(0, 1)
    (found,) = exe.run(feed={out.name + "@GRAD": ones}, fetch_list=["x@GRAD"])
    np.testing.assert_array_equal(found, 3 * ones)


def test_a_script_fills_the_queue_of_a_py_reader() -> None:
    reader = fluid.layers.py_reader(2, [[-1, 3]], ["float32"], use_double_buffer=False)
    x = fluid.layers.read_file(reader)
    batch = core.LoDTensorArray()
    batch.append(_tensor(np.ones((2, 3), "float32")))
    assert reader.queue.push(batch)
    assert (reader.queue.size(), reader.queue.capacity()) == (1, 2)
    reader.queue.close()
    assert not reader.queue.push(batch)
    exe = fluid.Executor(CPU)
    exe.run(fluid.default_startup_program())
    np.testing.assert_array_equal(exe.run(fetch_list=[x])[0], np.ones((2, 3)))
    with pytest.raises(core.EOFException, match="There is no next data"):
        exe.run(fetch_list=[x])


def _ahead(queue: core.LoDTensorBlockingQueue) -> int:
    """The size of a queue once it is full."""
    until = time.monotonic() + 120
    while queue.size() < queue.capacity() and time.monotonic() < until:
        time.sleep(0.005)
    return queue.size()


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_mark_of_the_end_is_no_batch(count: int) -> None:
    """Of a queue for four batches whose generator has ended."""
    x = fluid.data("x", [None, 3])
    reader = fluid.io.PyReader([x], 4)
    reader.decorate_batch_generator(lambda: ([np.ones((1, 3), "float32")] for _ in range(count)), CPU)
    passing = iter(reader())
    until = time.monotonic() + 120
    while reader.queue._channel._queue.qsize() <= count and time.monotonic() < until:
        time.sleep(0.005)
    assert (reader.queue._channel._queue.qsize(), reader.queue.size()) == (count + 1, count)
    assert len(list(passing)) == count


def test_the_queue_of_a_reader_tells_how_far_it_is_ahead() -> None:
    """Scripts print ``reader.queue.size()``, before the first pass too."""

    def batches():
        for at in range(5):
            yield [np.full((1, 3), at, "float32")]

    x = fluid.data("x", [None, 3])
    read = fluid.io.PyReader([x], 2)
    older = fluid.layers.py_reader(2, [[-1, 3]], ["float32"], use_double_buffer=False)
    assert (read.queue.size(), read.queue.capacity(), older.queue.size()) == (0, 2, 0)
    read.decorate_batch_generator(batches, CPU)
    older.decorate_batch_generator(batches)
    passing = iter(read())
    older.start()
    assert (_ahead(read.queue), _ahead(older.queue)) == (2, 2)
    assert len(list(passing)) == 5
    older.reset()
    with fluid.dygraph.guard():
        eager = fluid.io.DataLoader.from_generator(capacity=2)
        assert eager.queue.size() == 0
        eager.set_batch_generator(batches)
        iter(eager)
        assert _ahead(eager.queue) == 2


def test_a_loader_refuses_lists_of_different_lengths() -> None:
    with pytest.raises(TypeError, match="convert input data to a regular ndarray"):
        GeneratorLoader._check_input_array([[1, 2], [3]])
    np.testing.assert_array_equal(GeneratorLoader._check_input_array([[1, 2], [3, 4]]), [[1, 2], [3, 4]])


def test_bare_ops_and_the_optimizers_helpers() -> None:
    x = fluid.data("x", [2, 2])
    assert _scale(x, scale=3.0).op.attr("scale") == 3.0
    assert _scale(x, scale=3.0, out=x) is x
    assert append_regularization_ops([(x, None)]) == [(x, None)]
    assert append_gradient_clip_ops([]) == []


def test_descs_of_the_same_message_are_equal() -> None:
    program = core.ProgramDesc()
    block = program.block(0)
    variables = {block.var(name) for name in (b"a", b"b")}
    assert set(block.all_vars()) == variables and block.find_var(b"a") in variables
    ops = [block.append_op() for _ in range(3)]
    block._remove_op(1, 2)
    assert [block.op(i) for i in range(block.op_size())] == [ops[0], ops[2]] != [ops[2], ops[0]]
    assert program.block(0) == block != core.ProgramDesc().block(0)
    child = program.append_block(block)
    ops[0].set_block_attr("one", child)
    ops[0].set_blocks_attr("all", [block, child])
    assert ops[0]._block_attr_id("one") == 1 and ops[0]._blocks_attr_ids("all") == [0, 1]


def test_a_variable_is_renamed_through_its_blocks_desc() -> None:
    block = core.ProgramDesc().block(0)
    var, op = block.var(b"a"), block.append_op()
    op.set_input("X", ["a"])
    op.set_output("Out", ["a", "b"])
    block._rename_var(b"a", b"c")
    assert (var.name(), op.input("X"), op.output("Out")) == ("c", ["c"], ["c", "b"])
    block._rename_var(b"nothing", b"d")
    assert not block.has_var(b"d")


def test_the_program_inside_a_compiled_graph_is_none_to_save() -> None:
    program = fluid.Program()
    assert fluid.io._get_valid_program(fluid.CompiledProgram(program)) is program
    with pytest.raises(TypeError, match="is no program"):
        fluid.io._get_valid_program(fluid.CompiledProgram(core.Graph(program.desc)))
