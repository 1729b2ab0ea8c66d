"""The debugger, the stack of scopes, the check of an installation."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import debugger, default_scope_funcs


@pytest.fixture
def programs():
    """A program that trains a small network, and its startup program."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 4], lod_level=1)
        loss = fluid.layers.mean(fluid.layers.fc(x, 3, act="relu"))
        fluid.optimizer.SGD(0.1).minimize(loss)
        block = main.global_block()
        for name, kind in (("rows", "SELECTED_ROWS"), ("array", "LOD_TENSOR_ARRAY"), ("scopes", "STEP_SCOPES")):
            typed = {} if name == "scopes" else {"dtype": "float32"}
            block.create_var(name=name, type=getattr(fluid.core.VarDesc.VarType, kind), **typed)
        yield main, startup


def test_programs_as_code(programs) -> None:
    main, _ = programs
    code = debugger.pprint_program_codes(main)
    assert "LoDTensor x (tensor(type=float32, shape=[-1, 4]), lod_level=1)" in code
    assert "Tensor fc_0.w_0 (tensor(type=float32, shape=[4, 3]))" in code
    assert "fc_0.tmp_0 = mul(X=x, Y=fc_0.w_0) [{x_num_col_dims=1, " in code
    assert "mul_grad" not in code and "op_callstack" not in code and "rows" not in code
    whole = debugger.pprint_block_codes(main.global_block().desc, show_backward=True)
    assert "mul_grad(Out@GRAD=fc_0.tmp_0@GRAD, " in whole
    assert "SelectedRows rows (tensor(type=float32, shape=[]))" in whole
    assert "TensorArray array (tensor(type=float32, shape=[]), lod_level=0)" in whole
    assert "STEP_SCOPES scopes ()" in whole


def test_blocks_as_graphs(programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    path = str(tmp_path / "block.dot")
    block = programs[0].global_block()
    assert fluid.debugger.draw_block_graphviz(block, ["fc_0.w_0"], path) == path
    text = Path(path).read_text()
    assert text.startswith("digraph G {") and text.count("{") == text.count("}")
    assert '"var fc_0.w_0" -> op_0 [color="orange"];' in text and 'op_0 -> "var fc_0.tmp_0"' in text
    assert "<b>mul</b>" in text and text.count("[label=<<b>") == len(block.ops)


def test_graphs_are_drawn_where_graphviz_is(programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list = []
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/dot")
    monkeypatch.setattr(debugger.subprocess, "run", lambda command, check: ran.append(command))
    path = str(tmp_path / "block.dot")
    drawn = fluid.debugger.draw_block_graphviz(programs[0].global_block(), path=path)
    assert drawn == str(tmp_path / "block.pdf") and ran == [["/bin/dot", "-Tpdf", path, "-o", drawn]]


def test_a_stack_of_scopes() -> None:
    outer = default_scope_funcs.get_cur_scope()
    made = default_scope_funcs.var("a")

    def inside() -> bool:
        default_scope_funcs.var("b")
        assert default_scope_funcs.find_var("a") is made
        return default_scope_funcs.get_cur_scope() is not outer

    assert default_scope_funcs.scoped_function(inside)
    assert default_scope_funcs.get_cur_scope() is outer and default_scope_funcs.find_var("b") is None
    assert outer._kids() == []
    with pytest.raises(RuntimeError, match="no local scope was entered"):
        default_scope_funcs.leave_local_scope()


def test_an_installation_is_checked(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fluid.default_main_program().fingerprint()
    fluid.install_check.run_check()
    said = capsys.readouterr().out
    # From 3 down by the rate times the squared gradient in each of nine steps: 9 * 0.01 * 3 * (4**2 + 6**2 + 2**2).
    assert "fluidjax works on CPUPlace: the loss fell from 3.0000 to -12.1200" in said
    # What Paddle says where all is well; installers look for it.
    lines = [
        "Running Verify Fluid Program ... ",
        "Your Paddle Fluid works well on SINGLE GPU or CPU.",
        "Your Paddle Fluid works well on MUTIPLE GPU or CPU.",
        "Your Paddle Fluid is installed successfully! Let's start deep Learning with Paddle Fluid now",
    ]
    assert [line for line in said.splitlines() if line in lines] == lines
    assert fluid.default_main_program().fingerprint() == before


def test_an_installation_that_fails(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    check = fluid.install_check
    monkeypatch.setattr(check, "_train", lambda places: (1.0, float("nan") if len(places) > 1 else 0.5))
    check.run_check()
    assert "ONLY for SINGLE GPU or CPU" in capsys.readouterr().out.splitlines()[-1]
    monkeypatch.setattr(check, "_train", lambda places: (1.0, float("nan")))
    with pytest.raises(RuntimeError, match="the loss went from 1.0 to nan"):
        check.run_check()


def test_the_layer_of_the_check() -> None:
    """In both modes: the sum of three combinations with weights 0.1, and its gradient."""
    rows = np.float32([[1, 2], [3, 4]])
    with fluid.dygraph.guard():
        layer = fluid.install_check.SimpleLayer(2)
        out = layer(fluid.dygraph.to_variable(rows))
        out.backward()
        np.testing.assert_allclose(out.numpy(), [3.0], rtol=1e-6)
        np.testing.assert_array_equal(layer._linear1.weight.gradient(), np.float32([[4] * 3, [6] * 3]))
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        out = fluid.install_check.SimpleLayer(2)(fluid.layers.data("inp", [2, 2], append_batch_size=False))
        exe = fluid.Executor()
        exe.run(fluid.default_startup_program())
        np.testing.assert_allclose(exe.run(feed={"inp": rows}, fetch_list=[out])[0], [3.0], rtol=1e-6)


def test_a_run_that_meets_nan_leaves_its_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 2])
        y = fluid.layers.fc(x, 1, param_attr=fluid.initializer.Constant(0.5))
        before = main.fingerprint()
        debugger.prepare_fast_nan_inf_debug(main)
        assert main.fingerprint() == before
        exe = fluid.Executor()
        exe.run(startup)
        run = debugger.run_fast_nan_inf_debug
        assert run(exe, main, {"x": np.ones((1, 2), "float32")}, [y])[0] == [[1.0]] and not list(tmp_path.iterdir())
        monkeypatch.setitem(fluid.core.globals(), "FLAGS_check_nan_inf", True)
        assert run(exe, main, {"x": np.full((1, 2), np.nan, "float32")}, [y]) is None
        (core,) = tmp_path.iterdir()
        said = capsys.readouterr().out
        assert "catch an exception:" in said and "mul" in said and f"dumping a core into ./{core.name}" in said
        fluid.io.load_persistables(exe, str(tmp_path), main, core.name)
        np.testing.assert_array_equal(np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()), [[0.5]] * 2)
    with pytest.raises(AssertionError, match="expected an executor"):
        run(None)


def test_memory_passes_say_that_they_do_nothing(programs, caplog: pytest.LogCaptureFixture) -> None:
    before = programs[0].fingerprint()
    fluid.memory_optimize(programs[0])
    fluid.release_memory(programs[0])
    assert programs[0].fingerprint() == before and len(caplog.records) == 2
    with pytest.raises(TypeError, match="is no Program"):
        fluid.memory_optimize("main")  # type: ignore[arg-type]
