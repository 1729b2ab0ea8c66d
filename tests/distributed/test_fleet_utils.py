"""Programs of a fleet as files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.incubate.fleet.utils import utils


@pytest.fixture
def main() -> fluid.Program:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        fluid.layers.fc(fluid.data("x", [None, 3]), 2, param_attr="w", bias_attr="b")
    return program


def types(program: fluid.Program) -> list[str]:
    return [op.type for op in program.global_block().ops]


@pytest.mark.parametrize("is_text", [False, True])
def test_programs_are_written_read_and_turned_into_the_other_form(
    main: fluid.Program, tmp_path: Path, is_text: bool
) -> None:
    utils.save_program(main, str(tmp_path / "net"), is_text)
    assert types(utils.load_program(str(tmp_path / "net"), is_text)) == types(main)
    name = utils.program_type_trans(str(tmp_path), "net", is_text)
    assert name == ("net.bin" if is_text else "net.pbtxt")
    read = utils.load_program(str(tmp_path / name), not is_text)
    assert read.desc.serialize_to_string() == main.desc.serialize_to_string()


def test_a_text_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "net").write_text("what is this")
    with pytest.raises(ValueError, match="does not hold a program as text"):
        utils.load_program(str(tmp_path / "net"), is_text=True)


def test_what_pruning_may_leave(main: fluid.Program, caplog: pytest.LogCaptureFixture) -> None:
    pruned = main.clone()
    pruned.global_block().create_var(name="new", shape=[2], dtype="float32", persistable=True)
    assert utils.check_pruned_program_vars(main, pruned) and "no variable 'new'" in caplog.text
    other = fluid.Program()
    other.global_block().create_var(name="w", shape=[3, 4], dtype="float32", persistable=True)
    assert not utils.check_pruned_program_vars(main, other)


def test_lists_of_a_program(main: fluid.Program, tmp_path: Path) -> None:
    """The lines that 1.8.5 writes."""
    utils.parse_program(main, str(tmp_path))
    lines = {file.name: file.read_text().splitlines() for file in tmp_path.iterdir()}
    assert sorted(lines) == ["ops.log", "vars_all.log", "vars_persistable.log"]
    assert lines["ops.log"][:2] == [
        "ops:",
        """{'type': 'mul', 'input_arg_names': "['x', 'w']", 'output_arg_names': "['fc_0.tmp_0']"}""",
    ]
    assert lines["vars_all.log"][1] == "{'name': 'x', 'shape': '(-1, 3)', 'lod_level': 0, 'dtype': 'VarType.FP32'}"
    assert lines["vars_persistable.log"][2] == (
        "{'name': 'b', 'shape': '(2,)', 'lod_level': 0, 'dtype': 'VarType.FP32', 'type': 'VarType.LOD_TENSOR'}"
    )


def test_a_drawing(main: fluid.Program, tmp_path: Path) -> None:
    utils.graphviz(main.global_block(), str(tmp_path), "net")
    assert "mul" in (tmp_path / "net.dot").read_text()


def test_variables_as_files(tmp_path: Path, rng: Any) -> None:
    value = rng.random((2, 3), "float32")
    utils.save_var(value, "v", [3], "float32", str(tmp_path / "v"))
    assert (tmp_path / "v").read_bytes()[-24:] == value.tobytes()
    np.testing.assert_array_equal(utils.load_var("v", [3], "float32", str(tmp_path / "v"))[0], value)


def test_batches_of_a_file_of_numbers(tmp_path: Path) -> None:
    """What 1.8.5 returns: whole batches of each line."""
    (tmp_path / "f").write_text("1 2 3 4 5 6 7\n8 9 10 11\n")
    one, two = utils.reader(2, str(tmp_path / "f"), 1), utils.feed_gen(1, [[2, 2]], [str(tmp_path / "f")])[0]
    assert [b.tolist() for b in one] == [[[1], [2]], [[3], [4]], [[5], [6]], [[8], [9]], [[10], [11]]]
    assert [b.tolist() for b in two] == [[[[1, 2], [3, 4]]], [[[8, 9], [10, 11]]]]


def test_ops_that_pruning_should_remove(caplog: pytest.LogCaptureFixture) -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        for _ in range(2):
            fluid.layers.embedding(fluid.layers.data("i", [1], dtype="int64"), [4, 2])
    utils.check_not_expected_ops(program)
    assert [r.getMessage() for r in caplog.records] == [
        "there is a lookup_table in the program; look at how it was pruned"
    ]


def test_a_saved_model_whose_parameters_have_other_shapes(main: fluid.Program, tmp_path: Path) -> None:
    feeds = SimpleNamespace(feeded_vars_names=["x"], feeded_vars_dims=[3], feeded_vars_types=["float32"])
    feeds.feeded_vars_filelist = None
    fetches, names = SimpleNamespace(fetch_vars_names=None), (str(tmp_path), "__model__", False, 2)
    with fluid.program_guard(main, fluid.Program()), fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        for name, shape in (("w", (3, 2)), ("b", (2,))):
            fluid.global_scope().var(name).get_tensor().set(np.zeros(shape, "float32"), fluid.CPUPlace())
        out = main.global_block().var("fc_0.tmp_1")
        fluid.io.save_inference_model(str(tmp_path), ["x"], [out], executor, main, "__model__", "params")
    held = [main.global_block().var("w")]
    [found] = utils.try_load_model_vars(*names, feeds, fetches, "params", held)
    assert found.shape == (2, 2)
    held[0].desc.set_shape([3, 4])
    with pytest.raises(RuntimeError, match="parameter 'w' does not fit"):
        utils.try_load_model_vars(*names, feeds, fetches, "params", held)
