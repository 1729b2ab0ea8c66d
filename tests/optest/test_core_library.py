"""What ``fluid.core`` has for Fluid's own modules: flags, profiler, lists of fetches, queues, tensors, commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import core
from fluidjax.op import Operator

CPU = fluid.CPUPlace()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        yield


def tensor(array, lengths=()) -> core.LoDTensor:
    return fluid.create_lod_tensor(np.asarray(array), list(lengths), CPU)


def test_flags_are_read_and_set_by_name() -> None:
    flags = core.globals()
    assert isinstance(flags, core.GlobalVarGetterSetterRegistry)
    assert "FLAGS_check_nan_inf" in flags and "FLAGS_zz" not in flags
    assert set(flags.keys()) >= {"FLAGS_check_nan_inf", "FLAGS_use_mkldnn"}
    assert flags.get("FLAGS_zz") is None and flags.get("FLAGS_zz", 3) == 3
    before = flags["FLAGS_benchmark"]
    flags["FLAGS_benchmark"] = True
    assert fluid.get_flags("FLAGS_benchmark") == {"FLAGS_benchmark": True}
    flags["FLAGS_benchmark"] = before
    assert flags.is_public("FLAGS_benchmark")
    assert not flags.is_public("FLAGS_use_mkldnn") and not flags.is_public("FLAGS_zz")
    with pytest.raises(core.EnforceNotMet, match="Cannot find global variable FLAGS_zz"):
        flags["FLAGS_zz"]
    for name in ("FLAGS_zz", "FLAGS_use_mkldnn"):
        with pytest.raises(core.EnforceNotMet, match=f"{name} is not writable"):
            flags[name] = 1
    with pytest.raises(RuntimeError, match="expects a float"):
        flags["FLAGS_eager_delete_tensor_gb"] = "x"


def test_the_profiler_by_its_states_and_keys(tmp_path, capsys) -> None:
    assert [int(s) for s in core.ProfilerState] == [0, 1, 2, 3] and core.kAll is core.ProfilerState.kAll
    assert core.kDefault is core.EventSortingKey.kDefault and core.TracerOption.kAllOpDetail == 2
    assert str(core.EventSortingKey.kTotal) == "EventSortingKey.kTotal"
    out = fluid.layers.relu(fluid.data("x", [2]))
    core.set_tracer_option(core.TracerOption.kOpDetail)
    core.enable_profiler(core.ProfilerState.kCPU)
    assert core.is_profiler_enabled()
    fluid.Executor(CPU).run(feed={"x": np.ones(2, "float32")}, fetch_list=[out])
    core.disable_profiler(core.EventSortingKey.kMax, str(tmp_path / "profile"))
    core.set_tracer_option(core.TracerOption.kDefault)
    said = capsys.readouterr().out
    assert "relu#0" in said and "Sorted by max time" in said and not core.is_profiler_enabled()
    assert (tmp_path / "profile").exists()
    core.reset_profiler()
    with pytest.raises(core.EnforceNotMet, match="Can't enable profiling"):
        core.enable_profiler(core.ProfilerState.kDisabled)


def test_what_is_fetched_moves_to_a_list() -> None:
    scope = fluid.Scope()
    fetched = scope.var("fetch").get_fetch_list()
    assert isinstance(fetched, core.FetchList)
    fetched.append(tensor([1.0]))
    fetched.append(core.LoDTensorArray())
    assert len(core.get_fetch_variable(scope, "fetch", 1)) == 0
    with pytest.raises(TypeError, match="LoDTensor"):
        fetched.append(3)
    moved = fetched._move_to_list()
    assert [type(item) for item in moved] == [core.LoDTensor, core.LoDTensorArray] and not fetched


def test_a_rank_table_is_read_from_its_scope() -> None:
    x = fluid.data("rows", [None, 1], "int32", lod_level=2)
    table = fluid.layers.lod_rank_table(x, level=1)
    table.persistable = True
    exe = fluid.Executor(CPU)
    exe.run(feed={"rows": tensor(np.zeros((7, 1), "int32"), [[2, 1], [1, 5, 1]])}, fetch_list=[])
    found = fluid.global_scope().find_var(table.name).get_lod_rank_table()
    assert isinstance(found, core.LodRankTable) and found.items() == [(1, 5), (0, 1), (2, 1)]
    assert fluid.Scope().var("empty").get_lod_rank_table().items() == []


def test_readers_over_queues() -> None:
    queue = core.init_lod_tensor_blocking_queue(core.Variable(), 8, False)
    for i in range(5):
        assert queue.push([tensor([float(i)]), tensor([i])])
    queue.close()
    reader = core.create_py_reader(queue, ["x", "y"], [[1], [1]], [5, 3], [True, True], [CPU, CPU], True, True)
    first, second = reader.read_next()
    assert [float(np.array(feed["x"])[0]) for feed in (first, second)] == [0.0, 1.0]
    assert [[int(np.array(t)[0]) for t in batch] for batch in reader.read_next_list()] == [[2, 2], [3, 3]]
    with pytest.raises(StopIteration):
        reader.read_next()
    ordered = core.OrderedMultiDeviceLoDTensorBlockingQueue(4)
    ordered.push([tensor([7.0])])
    reader = core.create_py_reader(ordered, ["x"], [[1]], [5], [False], [CPU], False, False)
    assert isinstance(reader, core.OrderedMultiDeviceFeedReader)
    with fluid.dygraph.guard():
        (x,) = reader.read_next_var_list()
        assert x.numpy().tolist() == [7.0]
    reader.reset()
    assert not ordered.push([tensor([8.0])])
    ordered.reset()
    assert ordered.push([tensor([8.0])]) and ordered.size() == 1


@pytest.mark.parametrize(("drop_last", "batches"), [(True, [[1.0, 2.0]]), (False, [[1.0, 2.0], [3.0]])])
def test_a_data_set_is_iterated(tmp_path, drop_last, batches) -> None:
    (tmp_path / "part").write_text("1 4 2 1.0 0.5\n3 5 6 7 2 2.0 0.5\n1 6 2 3.0 0.5\n")
    dataset = core.Dataset("MultiSlotDataset")
    dataset.set_filelist([str(tmp_path / "part")])
    dataset.set_data_feed_desc(
        'name: "MultiSlotDataFeed" batch_size: 1 pipe_command: "cat" multi_slot_desc {'
        ' slots { name: "ids" type: "uint64" is_dense: false is_used: true }'
        ' slots { name: "x" type: "float" is_dense: true is_used: true shape: 2 } }'
    )
    wrapped = core.IterableDatasetWrapper(dataset, ["ids", "x"], [CPU, CPU], 1, drop_last)
    wrapped._start()
    found = []
    with pytest.raises(StopIteration):
        while True:
            feeds = wrapped._next()
            found.append([float(np.array(feed["x"])[0, 0]) for feed in feeds])
            assert [feed["ids"].lod() for feed in feeds][:2] in ([[[0, 1]], [[0, 3]]], [[[0, 1]]])
    assert found == batches


def test_a_graph_runs_over_devices() -> None:
    x = fluid.data("x", [None, 2])
    y = fluid.layers.scale(x, 2.0)
    graph, scope = core.Graph(fluid.default_main_program().desc), fluid.Scope()
    places, local = [CPU, CPU], [scope.new_scope(), scope.new_scope()]
    strategies = core.ParallelExecutor.ExecutionStrategy(), core.ParallelExecutor.BuildStrategy()
    parallel = core.ParallelExecutor(places, [], "", scope, local, *strategies, graph)
    assert parallel.device_count() == 2 and parallel.local_scopes() == local
    parallel.feed_and_split_tensor_into_local_scopes({"x": tensor(np.float32([[1, 2], [3, 4]]))})
    (merged,) = parallel.run([y.name], True)._move_to_list()
    np.testing.assert_array_equal(merged, [[2, 4], [6, 8]])
    one, two = tensor(np.float32([[1, 2]])), tensor(np.float32([[5, 6]]))
    parallel.feed_tensors_into_local_scopes([{"x": one}, {"x": two}])
    unmerged = parallel.run([y.name], False)
    assert isinstance(unmerged, core.FetchUnmergedList)
    assert [np.array(t).tolist() for t in unmerged._move_to_list()[0]] == [[[2.0, 4.0]], [[10.0, 12.0]]]
    assert not parallel._need_create_local_exe_scopes()
    parallel.drop_local_exe_scopes()
    assert parallel._need_create_local_exe_scopes()


def test_tensors_go_to_other_libraries_and_come_back() -> None:
    given = tensor(np.float32([[1, 2], [3, 4]]))
    back = core.from_dlpack(given._to_dlpack())
    np.testing.assert_array_equal(back, given)
    first, second = core._convert_to_tensor_list([np.int64([1, 2]), np.float32([[3]])])
    assert (first.shape(), second.shape()) == ([2], [1, 1])
    # As 1.8.5 writes it.
    stream = core.paddle_tensor_to_bytes(core.PaddleTensor(np.int64([[1], [2]]), "ab", [[0, 1, 2]]))
    head = "00000000 0200000000000000 6162 0100000000000000 1800000000000000"
    head += "000000000000000001000000000000000200000000000000"
    tail = "0200000000000000 0200000001000000 01000000 1000000000000000 01000000000000000200000000000000"
    assert stream == bytes.fromhex(head + tail)


def test_eager_mode_by_core() -> None:
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.float32([2, 3]))
        x.stop_gradient = False
        tracer, y = core.Tracer(), core.VarBase()
        before = fluid.framework._dygraph_tracer()
        core._switch_tracer(tracer)
        tracer.trace("square", {"X": [x]}, {"Out": [y]}, {}, CPU, True)
        core._switch_tracer(before)
        strategy = core.BackwardStrategy()
        (grad,) = core.dygraph_partial_grad([x], [y], [], [], core.Place(), strategy, False, False, False, True)
        assert grad.numpy().tolist() == [4.0, 6.0]
        strategy = core.ParallelStrategy()
        assert (strategy.nranks, strategy.local_rank) == (1, 0)


def test_the_library_and_the_shell() -> None:
    assert core.run_cmd("echo hi") == "hi\n" and core.run_shell_command("echo hi") == "hi"
    assert core.run_shell_command("echo no >&2") is None
    assert core.less_than_ver("2.9", "2.10") and not core.less_than_ver("1.0", "1")
    assert fluid.core_suffix == core.core_suffix == "so" and fluid.legacy_core.endswith("core.so")
    assert core.avx_supported() and core._is_program_version_supported(0) and core._dygraph_debug_level() == 0
    assert not core._is_dygraph_debug_enabled()
    with pytest.raises(core.EnforceNotMet):
        core.__unittest_throw_exception__()
    assert core.DeviceContext.create(CPU).place is CPU
    with pytest.raises(TypeError, match="No constructor"):
        core.DeviceContext()
    with pytest.raises(RuntimeError, match="C\\+\\+"):
        core.load_op_library("ops.so")
    with pytest.raises(NotImplementedError, match="BoxPS"):
        core.BoxPS()
    config = core.AnalysisConfig("model")
    with pytest.raises(core.EnforceNotMet, match="was not enabled"):
        config.quantizer_config()
    config.enable_quantizer()
    config.quantizer_config().set_enabled_op_types({"conv2d"})
    program = fluid.Program()
    assert core.save_op_compatible_info(program.desc)
    assert program.desc.proto.op_compatible_map.default_required_version == "1.5.0"


def test_pslibs_client_has_settings_and_no_servers() -> None:
    fleet = core.Fleet()
    assert fleet.set_client2client_config(1, 1, 1) is None
    assert fleet.set_pull_local_thread_num(2) is None
    assert fleet.get_cache_threshold(0) == 0.0
    with pytest.raises(NotImplementedError, match="fluid.core.Fleet.push_dense is not built"):
        fleet.push_dense  # noqa: B018 - asked for alone


LAST_WORDS = {
    "import sys; sys.exit(3)": "exited unexpectedly with code 3",
    "import os, signal; os.kill(os.getpid(), signal.SIGBUS)": "killed by signal: Bus error",
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)": "killed by signal: Segmentation fault",
    "pass": None,
}


@pytest.mark.parametrize(("script", "words"), LAST_WORDS.items(), ids=["error", "bus", "fault", "well"])
def test_the_end_of_a_watched_process_is_told_once(script: str, words: str | None) -> None:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", script]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        core._throw_error_if_process_failed()
        core._set_process_pids(1, (process.pid,))
        try:
            if words is not None:
                with pytest.raises(core.EnforceNotMet, match=f"FatalError: .*{words}"):
                    core._throw_error_if_process_failed()
            core._throw_error_if_process_failed()
        finally:
            core._erase_process_pids(1)
        process.wait()
        core._set_process_pids(1, (process.pid,))
        core._throw_error_if_process_failed()  # nobody's child any more
        core._erase_process_pids(1)


def test_a_watched_process_ends_well_when_it_is_asked_to() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        core._set_process_signal_handler()
        assert signal.getsignal(signal.SIGTERM) not in (before, signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_one_executor_serves_the_runs_of_an_op_at_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[fluid.CPUPlace] = []

    class Counted(fluid.Executor):
        def __init__(self, place: fluid.CPUPlace) -> None:
            made.append(place)
            super().__init__(place)

    monkeypatch.setattr("fluidjax.execution.single.Executor", Counted)
    scope, place = fluid.Scope(), fluid.CPUPlace()
    x, y = (scope.var(name).get_tensor() for name in ("X", "Out"))
    double = Operator("scale", X="X", Out="Out", scale=2.0)
    for value in (1.0, 2.0, 3.0):
        x.set(np.float64([value]), place)
        double.run(scope, fluid.CPUPlace())
        assert np.asarray(y).tolist() == [2 * value]
    assert made == [place]
