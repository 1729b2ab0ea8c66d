"""Ops of loaded programs that act on the host wait for the user's word; then they work."""

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution import python_functions
from fluidjax.files.errors import FileFormatError, UntrustedProgramError
from tests.files.conftest import VALUES

EXE = fluid.Executor()


def saving_program(path, **attrs):
    """A program that writes the variable w to a file."""
    program = fluid.Program()
    block = program.global_block()
    block.create_var(name="w", shape=[3, 2], dtype="float32", persistable=True)
    block.append_op(type="save", inputs={"X": "w"}, attrs={"file_path": str(path), **attrs})
    return program


def loading_program(path, **attrs):
    program = fluid.Program()
    block = program.global_block()
    block.create_var(name="w", shape=[3, 2], dtype="float32", persistable=True)
    block.append_op(type="load", outputs={"Out": "w"}, attrs={"file_path": str(path), **attrs})
    return program


def test_a_program_of_ones_own_runs(scope, tmp_path):
    EXE.run(saving_program(tmp_path / "w"))
    with fluid.scope_guard(fluid.Scope()):
        EXE.run(loading_program(tmp_path / "w"))
        np.testing.assert_array_equal(np.array(fluid.global_scope().find_var("w").get_tensor()), VALUES["w"])


@pytest.mark.parametrize("copy", [lambda p: p, lambda p: p.clone(), lambda p: p.clone(for_test=True)])
def test_a_loaded_program_asks_first(scope, tmp_path, copy):
    loaded = copy(fluid.Program.parse_from_string(saving_program(tmp_path / "w").desc.serialize_to_string()))
    with pytest.raises(UntrustedProgramError, match="op 0 of block 0, save, writes a file") as error:
        EXE.run(loaded)
    assert "allow_host_ops(program, ['save'])" in str(error.value)
    assert not (tmp_path / "w").exists()
    fluid.io.allow_host_ops(loaded, ["load"])
    with pytest.raises(UntrustedProgramError):
        EXE.run(loaded)
    fluid.io.allow_host_ops(loaded, ["save"])
    EXE.run(loaded)
    assert (tmp_path / "w").exists()


def test_all_of_a_loaded_program_can_be_allowed(scope, tmp_path):
    loaded = fluid.Program.parse_from_string(saving_program(tmp_path / "w").desc.serialize_to_string())
    fluid.io.allow_host_ops(loaded)
    EXE.run(loaded.clone())
    assert (tmp_path / "w").exists()


def test_a_flag_gives_leave_to_all_programs_that_a_script_loads(scope, tmp_path):
    loaded = fluid.Program.parse_from_string(saving_program(tmp_path / "w").desc.serialize_to_string())
    try:
        fluid.set_flags({"FLAGS_allow_host_ops": "send, recv"})
        with pytest.raises(UntrustedProgramError, match="or start the script with FLAGS_allow_host_ops=save;"):
            EXE.run(loaded)
        fluid.set_flags({"FLAGS_allow_host_ops": "send,shave"})
        with pytest.raises(ValueError, match="received: shave"):
            EXE.run(loaded)
        fluid.set_flags({"FLAGS_allow_host_ops": "recv,save"})
        EXE.run(loaded)
    finally:
        fluid.set_flags({"FLAGS_allow_host_ops": ""})
    assert (tmp_path / "w").exists()


def test_save_options(scope, tmp_path):
    path = tmp_path / "w"
    EXE.run(saving_program(path, save_as_fp16=True))
    with fluid.scope_guard(fluid.Scope()):
        EXE.run(loading_program(path))
        found = np.array(fluid.global_scope().find_var("w").get_tensor())
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, VALUES["w"].astype("f2"))
    with pytest.raises(Exception, match="exists already"):
        EXE.run(saving_program(path, overwrite=False))


def test_load_a_part(scope, tmp_path):
    EXE.run(saving_program(tmp_path / "w"))
    with fluid.scope_guard(fluid.Scope()):
        EXE.run(loading_program(tmp_path / "w", seek=2, shape=[2, 1]))
        np.testing.assert_array_equal(np.array(fluid.global_scope().find_var("w").get_tensor()), [[2.0], [3.0]])
        with pytest.raises(Exception, match="elements 5 to 9") as error:
            EXE.run(loading_program(tmp_path / "w", seek=5, shape=[4]))
        assert isinstance(error.value, FileFormatError) or isinstance(error.value.__context__, FileFormatError)


def test_combined(scope, tmp_path):
    program = fluid.Program()
    block = program.global_block()
    for name, value in VALUES.items():
        kind = "int64" if value.dtype == np.int64 else "float32"
        block.create_var(name=name, shape=value.shape, dtype=kind, persistable=True)
    path = {"file_path": str(tmp_path / "all")}
    block.append_op(type="save_combine", inputs={"X": sorted(VALUES)}, attrs=path)
    EXE.run(program)
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_persistables(EXE, str(tmp_path), program, filename="all")
    block._remove_op(0)
    block.append_op(type="load_combine", outputs={"Out": sorted(VALUES)}, attrs=path)
    with fluid.scope_guard(fluid.Scope()):
        EXE.run(program)
        for name, value in VALUES.items():
            np.testing.assert_array_equal(np.array(fluid.global_scope().find_var(name).get_tensor()), value)


def test_the_layer_load(scope, tmp_path):
    from fluidjax.layers import io

    fluid.io.save_vars(EXE, str(tmp_path), vars=[saving_program("x").global_block().var("w")])
    program = fluid.Program()
    with fluid.program_guard(program):
        out = program.global_block().create_var(name="loaded", shape=[3, 2], dtype="float32")
        io.load(out, str(tmp_path / "w"))
    np.testing.assert_array_equal(EXE.run(program, fetch_list=[out])[0], VALUES["w"])


def py_func_program(function, out="out"):
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [2, 3], "float32")
        x.stop_gradient = False
        result = program.global_block().create_var(name=out, dtype="float32", shape=[2, 3])
        fluid.layers.py_func(function, x, result, backward_func=lambda *args: args[-1])
        fluid.layers.mean(result)
    return program


def test_check_grad_asks_first():
    """It runs a program too, and that of a file would have called a function or written a file."""
    called = []
    program = py_func_program(lambda x: called.append(1) or np.array(x))
    loaded = fluid.Program.parse_from_string(program.desc.serialize_to_string())
    with pytest.raises(UntrustedProgramError, match="py_func"):
        fluid.check_grad(loaded, {"x": np.ones((2, 3), np.float32)})
    assert not called


def test_a_program_of_a_desc_counts_as_loaded(scope, tmp_path):
    desc = saving_program(tmp_path / "w").desc
    loaded = fluid.Program._construct_from_desc(fluid.core.ProgramDesc(desc.serialize_to_string()))
    with pytest.raises(UntrustedProgramError):
        EXE.run(loaded)
    assert not (tmp_path / "w").exists()


def test_leave_for_one_py_func_is_none_for_another_of_its_number():
    called = []
    program = py_func_program(lambda x: np.array(x))
    loaded = fluid.Program.parse_from_string(program.desc.serialize_to_string())
    block = loaded.global_block()
    block.create_var(name="stolen", dtype="float32", shape=[2, 3])
    number = len(python_functions._functions)  # what the next function will get
    attrs = {"forward_callable_id": number, "backward_callable_id": -1, "backward_skip_vars": []}
    block.append_op(type="py_func", inputs={"X": ["x"]}, outputs={"Out": ["stolen"]}, attrs=attrs)
    fluid.io.bind_py_func(loaded, "out", lambda x: called.append(1) or np.array(x))
    with pytest.raises(UntrustedProgramError, match="op 2 of block 0"):
        EXE.run(loaded, feed={"x": np.ones((2, 3), np.float32)}, fetch_list=["out"])
    assert not called


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b31m", "\u202e", "\x07"])
def test_a_printed_program_does_nothing_to_the_terminal(text):
    program = fluid.Program()
    program.global_block().create_var(name=f"a{text}b", dtype="float32", shape=[1], persistable=True)
    for shown in (str(program), program.to_string(True, True), str(program.global_block().vars[f"a{text}b"])):
        assert all(c.isprintable() or c == "\n" for c in shown)
