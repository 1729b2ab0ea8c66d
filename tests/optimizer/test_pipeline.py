"""How PipelineOptimizer cuts a program, against what Paddle 1.8.5 writes, and what its settings mean."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.devices.stages import Section, stages
from fluidjax.framework import program_view

# Of each section the ops, as Paddle 1.8.5 deals them out.
SECTIONS = [
    "mul elementwise_add relu pow increment",
    "mul elementwise_add elementwise_sub square mean fill_constant mean_grad square_grad elementwise_sub_grad"
    " elementwise_add_grad mul_grad sgd sgd",
    "reduce_mean relu_grad elementwise_add_grad mul_grad sgd sgd",
]


def net(minimize: Callable[[Any, Any], Any]) -> fluid.Program:
    """A program of two layers; ``minimize(hidden, loss)`` adds the rest."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
        hidden = layers.fc(x, 3, act="relu", param_attr="w0", bias_attr="b0")
        out = layers.fc(hidden, 1, param_attr="w1", bias_attr="b1")
        layers.reduce_mean(out)
        minimize(hidden, layers.mean(layers.square_error_cost(out, y)))
    main.startup, main.fed = startup, [x, y]
    return main


def pipeline(inner: Any = None, **settings: Any) -> Callable[[Any, Any], Any]:
    def minimize(hidden: Any, loss: Any) -> Any:
        made = fluid.optimizer.SGD(0.1) if inner is None else inner()
        return fluid.optimizer.PipelineOptimizer(made, cut_list=[[hidden], [loss]], **settings).minimize(loss)

    return minimize


def sections(program: fluid.Program) -> list[fluid.Program]:
    return [section["program"] for section in program._pipeline_opt["section_program_list"]]


def test_sections_are_paddles() -> None:
    def rate() -> Any:
        counter = layers.create_global_var([1], 0.0, "float32", persistable=True, name="counter")
        with fluid.default_main_program()._lr_schedule_guard():
            decayed = layers.pow(counter, 0.5)
            layers.increment(counter, 1.0)
        return fluid.optimizer.SGD(decayed)

    program = net(pipeline(rate))
    assert [" ".join(op.type for op in part.global_block().ops) for part in sections(program)] == SECTIONS
    first, middle, last = program._pipeline_opt["section_program_list"]
    assert first["input_set"] == {"x", "w0", "b0"} and first["output_set"] == {"fc_0.tmp_2", "pow_0.tmp_0"}
    assert middle["input_set"] == {"b1", "fc_0.tmp_2", "pow_0.tmp_0", "w1", "y"}
    assert middle["output_set"] == {"fc_0.tmp_2@GRAD"} and last["output_set"] == set()
    taken = {"fc_0.tmp_0", "fc_0.tmp_2", "fc_0.tmp_2@GRAD", "fc_1.tmp_1", "pow_0.tmp_0"}
    assert last["input_set"] == {"b0", "w0", "x", *taken}


def test_a_section_without_cuts_is_the_program() -> None:
    program = net(lambda hidden, loss: fluid.optimizer.PipelineOptimizer(fluid.optimizer.SGD(0.1)).minimize(loss))
    assert sections(program) == [program]
    assert program._pipeline_opt["place_list"] == [fluid.CPUPlace()]


@pytest.mark.parametrize("setting", ["place_list", "concurrency_list"])
def test_each_section_has_a_place(setting: str) -> None:
    with pytest.raises(ValueError, match=rf"{setting} does not fit(.|\n)*expected: 3(.|\n)*received: 2"):
        net(pipeline(**{setting: [fluid.CPUPlace()] * 2}))


def test_what_shares_changing_variables_is_one_stage() -> None:
    """A clip by the global norm needs all gradients before the first update."""
    apart = [Section.of(program_view(part)) for part in sections(net(pipeline()))]
    assert stages(apart) == [range(0, 1), range(1, 2)]
    clip = fluid.clip.GradientClipByGlobalNorm(0.1)
    joined = [
        Section.of(program_view(p)) for p in sections(net(pipeline(lambda: fluid.optimizer.SGD(0.1, grad_clip=clip))))
    ]
    assert stages(joined) == [range(0, 2)]


def train(
    program: fluid.Program, folder: Path, label: float = 1.0, **settings: Any
) -> tuple[list[float], dict[str, np.ndarray]]:
    """The losses of two passes over 20 samples, in batches of 8, and the parameters after them; ``label``: the last."""
    numbers, losses = np.random.RandomState(0), []
    rows = numbers.rand(20, 5)
    rows[-1, -1] = label
    (folder / "data").write_text("".join(f"4 {' '.join(map(str, row[:4]))} 1 {row[4]}\n" for row in rows))
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_batch_size(8)
    dataset.set_use_var(program.fed)
    dataset.set_filelist([str(folder / "data")])
    scope, executor = fluid.Scope(), fluid.Executor()

    class Keep:
        def handler(self, values: dict[str, Any]) -> None:
            losses.append(np.array(values["loss"]).item())

    with fluid.scope_guard(scope):
        executor.run(program.startup)
        for parameter in program.all_parameters():
            tensor = scope.find_var(parameter.name).get_tensor()
            tensor.set(numbers.rand(*tensor.shape()).astype("float32"), fluid.CPUPlace())
        loss = program.global_block().var("mean_0.tmp_0")
        asked = {"fetch_list": [loss], "fetch_info": ["loss"], "print_period": 1, "fetch_handler": Keep()}
        for _ in range(2):
            executor.train_from_dataset(program, dataset, **asked, **settings)
    return losses, {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in program.all_parameters()}


@pytest.mark.parametrize("clip", [None, fluid.clip.GradientClipByGlobalNorm(0.1)])
def test_one_batch_at_a_time_trains_as_the_program_does(clip: Any, tmp_path: Path) -> None:
    def inner() -> Any:
        return fluid.optimizer.Momentum(layers.exponential_decay(0.1, 2, 0.9), 0.9, grad_clip=clip)

    losses, values = train(net(pipeline(inner, queue_size=1)), tmp_path)
    wanted, others = train(net(lambda hidden, loss: inner().minimize(loss)), tmp_path)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    for name, value in values.items():
        np.testing.assert_allclose(value, others[name], rtol=1e-5, atol=1e-6)


def test_an_error_in_a_stage_is_raised_and_ends_the_others(tmp_path: Path) -> None:
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    try:
        with pytest.raises(FloatingPointError, match="square"):
            train(net(pipeline(queue_size=2)), tmp_path, label=float("nan"))
    finally:
        fluid.set_flags({"FLAGS_check_nan_inf": False})
    assert not [t for t in threading.enumerate() if t.name.startswith("fluidjax-stage")]


@pytest.mark.parametrize(
    ("files", "wanted", "readers", "found", "fitting", "threads"),
    [(7, 2, 2, 2, 2, 4), (7, 2, 4, 2, 3, 6), (8, 2, 4, 2, 4, 8), (8, 2, 5, 2, 4, 8), (3, 4, 2, 3, 1, 3)],
)
def test_pipelines_are_at_most_as_many_as_files(
    files: int, wanted: int, readers: int, found: int, fitting: int, threads: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """As 1.8.5 fits them."""
    dataset = fluid.DatasetFactory().create_dataset("FileInstantDataset")
    dataset.set_filelist([f"file{i}" for i in range(files)])
    options = {"concurrency_list": [readers, 1, 2]}
    executor = fluid.Executor(fluid.CPUPlace())
    assert executor._adjust_pipeline_resource(options, dataset, wanted) == found
    assert (options["concurrency_list"], dataset.thread_num) == ([fitting, 1, 2], threads)
    told = capsys.readouterr().out
    assert ("pipelines instead" in told, "readers each instead" in told) == (found < wanted, fitting < readers)
