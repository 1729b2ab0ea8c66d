"""Programs of a fleet as files."""

from __future__ import annotations

from pathlib import Path

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
