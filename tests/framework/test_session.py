"""Names, places, flags, versions, the check of the back end, and what notebooks show."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from xml.etree import ElementTree

import jax
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax import backend_check, unique_name
from fluidjax.framework import Program
from fluidjax.notebook import cells

ROOT = Path(__file__).resolve().parents[2]


def test_names_are_counted_by_kind() -> None:
    with unique_name.guard():
        assert [unique_name.generate(key) for key in ("fc", "fc", "conv2d", "fc")] == [
            "fc_0",
            "fc_1",
            "conv2d_0",
            "fc_2",
        ]
        with unique_name.guard("pre_"):
            assert unique_name.generate("fc") == "pre_fc_0"
            with unique_name.guard():
                assert unique_name.generate("fc") == "fc_0"
        with unique_name.guard(b"bytes_"):
            assert unique_name.generate("fc") == "bytes_fc_0"
        generator, checker = unique_name.switch()
        assert unique_name.generate("fc") == "fc_0"
        unique_name.switch(generator, checker)
        assert unique_name.generate("fc") == "fc_3"
        assert not checker("w") and checker("w")


def test_places() -> None:
    assert fluid.CPUPlace() == fluid.CPUPlace() and str(fluid.CPUPlace()) == "CPUPlace"
    assert fluid.CPUPlace()._jax_device().platform == "cpu"
    place = fluid.core.Place()
    with pytest.raises(ValueError, match="names no device yet"):
        place._jax_device()
    place.set_place(fluid.CPUPlace())
    assert place.is_cpu_place() and not place.is_gpu_place() and place == fluid.CPUPlace()
    with pytest.raises(ValueError, match="no accelerator"):
        place.gpu_device_id()
    assert len(fluid.cpu_places(3)) == 3


def test_cpu_num(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    assert len(fluid.cpu_places()) == 2


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is an accelerator")
def test_no_accelerator() -> None:
    assert not fluid.is_compiled_with_cuda() and fluid.core.get_cuda_device_count() == 0
    for make in (lambda: fluid.CUDAPlace(0), fluid.CUDAPinnedPlace, fluid.cuda_places):
        with pytest.raises(RuntimeError, match=r"jax sees.*Use fluid\."):
            make()


@pytest.mark.skipif(jax.default_backend() == "cpu", reason="there is no accelerator")
def test_accelerators() -> None:
    count = fluid.core.get_cuda_device_count()
    assert fluid.is_compiled_with_cuda() and len(fluid.cuda_places()) == count
    assert fluid.CUDAPlace(0)._jax_device().platform != "cpu"
    assert fluid.CUDAPlace(0).get_device_id() == 0 and fluid.cuda_places([0]) == [fluid.CUDAPlace(0)]
    with pytest.raises(RuntimeError, match=f"jax sees {count}"):
        fluid.CUDAPlace(count)


def test_flags() -> None:
    name = "FLAGS_check_nan_inf"
    assert fluid.get_flags(name) == {name: False}
    try:
        fluid.set_flags({name: "1"})
        assert fluid.get_flags([name]) == {name: True} and fluid.core.globals()[name]
    finally:
        fluid.set_flags({name: 0})
    with pytest.raises(ValueError, match="FLAGS_nope cannot get its value.*Known flags"):
        fluid.get_flags("FLAGS_nope")
    with pytest.raises(ValueError, match="FLAGS_nope cannot set its value"):
        fluid.set_flags({"FLAGS_nope": 1})
    with pytest.raises(ValueError, match="neither on nor off"):
        fluid.set_flags({name: "maybe"})
    with pytest.raises(ValueError, match="expects a float, received 'much'"):
        fluid.set_flags({"FLAGS_eager_delete_tensor_gb": "much"})
    with pytest.raises(RuntimeError, match="expects a float, received 'much'"):  # what 1.8.5 says
        fluid.set_flags({"FLAGS_eager_delete_tensor_gb": "much"})
    with pytest.raises(TypeError, match="should be a dict"):
        fluid.set_flags(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="list, tuple or string"):
        fluid.get_flags(3)  # type: ignore[arg-type]


def test_flags_come_from_the_environment() -> None:
    code = "import fluidjax as f; print(f.get_flags('FLAGS_check_nan_inf'))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"FLAGS_check_nan_inf": "1", "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "{'FLAGS_check_nan_inf': True}"


def test_require_version() -> None:
    fluid.require_version("1.8")
    fluid.require_version("1.0", "1.8.5")
    for bounds in (("2.0",), ("1.0", "1.5")):
        with pytest.raises(Exception, match="VersionError"):
            fluid.require_version(*bounds)
    with pytest.raises(ValueError, match="must be in format"):
        fluid.require_version("a")
    with pytest.raises(TypeError, match="'max_version' in require_version must be str"):
        fluid.require_version("1.0", 2)  # type: ignore[arg-type]


def test_eager_mode_is_off() -> None:
    assert not fluid.in_dygraph_mode()
    with pytest.raises(RuntimeError, match="Register the op with lowering.op"):
        fluid.load_op_library("ops.so")


def test_op_protos_come_from_the_registry() -> None:
    proto = fluid.framework.OpProtoHolder.instance().get_op_proto("mul")
    assert [slot.name for slot in proto.inputs] == ["X", "Y"]
    assert {"x_num_col_dims", "y_num_col_dims"} <= {attr.name for attr in proto.attrs}
    with pytest.raises(ValueError, match='"nope" has not been registered'):
        fluid.framework.OpProtoHolder.instance().get_op_proto("nope")
    assert len(fluid.framework.get_all_op_protos()) == len(lowering.registered_ops())
    assert fluid.core.get_op_attrs_default_value(b"mul")["x_num_col_dims"] == 1
    assert fluid.core.has_grad_op_maker("mul") and not fluid.core.has_grad_op_maker("nope")


def test_a_foreign_back_end_is_told(tmp_path: Path) -> None:
    backend_check.check_lowering(lowering)
    foreign = types.ModuleType("lowering")
    foreign.__file__ = str(tmp_path / "lowering.py")
    with pytest.raises(ImportError, match="not the back end of fluidjax. Expected .*rename"):
        backend_check.check_lowering(foreign)


def test_a_script_beside_a_folder_named_lowering(tmp_path: Path) -> None:
    (tmp_path / "lowering").mkdir()
    (tmp_path / "lowering" / "__init__.py").write_text("")
    (tmp_path / "train.py").write_text("import fluidjax\n")
    result = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert result.returncode != 0
    assert "hides it: rename" in result.stderr and str(tmp_path / "lowering") in result.stderr


class Shell:
    """As much of a notebook as is looked at."""

    def __init__(self) -> None:
        self.user_ns: dict[str, list[str]] = {"In": [""]}
        self.parent: dict = {}

    def get_parent(self) -> dict:
        return self.parent

    def run(self, source: str, names: dict, cell: str | None = None) -> None:
        self.user_ns["In"].append(source)
        self.parent = {"metadata": {"cellId": cell}} if cell else {}
        exec(source, names)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    made = Shell()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: made))
    return made


BUILD = "y = x * 2.0\nfor _ in range(3):\n    y = y + 1.0\n"


def test_a_cell_that_builds_twice_warns_once(shell: Shell) -> None:
    program = Program()
    x = program.global_block().create_var(name="x", shape=[2], dtype="float32")
    names = {"x": x}
    shell.run(BUILD, names)
    shell.run("z = y + x", names)  # another cell
    with pytest.warns(UserWarning, match=r"run before, as \[1\].*run again as \[3\].*program_guard") as caught:
        shell.run(BUILD, names)
    assert len(caught) == 1
    assert caught[0].filename == "<string>" and caught[0].lineno == 1, "the user's own line"


def test_an_edited_cell_is_known_by_its_id(shell: Shell) -> None:
    program = Program()
    names = {"x": program.global_block().create_var(name="x", shape=[2], dtype="float32")}
    shell.run(BUILD, names, cell="first")
    with pytest.warns(UserWarning, match="this cell was run before"):
        shell.run(BUILD + "y = y * 2.0\n", names, cell="first")


def test_a_cell_with_programs_of_its_own_does_not_warn(shell: Shell) -> None:
    guarded = (
        "with fluid.program_guard(fluid.Program(), fluid.Program()):\n"
        "    x = fluid.default_main_program().global_block().create_var(shape=[2], dtype='float32')\n"
        "    y = x * 2.0\n"
    )
    for _ in range(2):
        shell.run(guarded, {"fluid": fluid})  # warnings are errors
    assert cells._current_cell() == (guarded, 2)


def test_pages_for_notebooks() -> None:
    program = Program()
    with fluid.program_guard(program):
        block = program.global_block()
        x = block.create_var(name="<x>", shape=[-1, 4], dtype="float32", lod_level=1, is_data=True)
        block.create_parameter(name="w", shape=[4, 3], dtype="float32")
        y = x * 2.0
        inner = program._create_block()
        inner.create_var(name="s", type=fluid.core.VarDesc.VarType.STEP_SCOPES)
    page = program._repr_html_()
    assert "1 ops in 2 blocks, 1 parameters of 12 elements" in page and "block 1</b> inside block 0" in page
    assert "&lt;x&gt;" in page and "<x>" not in page, "names are escaped"
    assert "&lt;x&gt; [?, 4]" in page and "float32" in page and "data, lod level 1" in page and "scale=2" in page
    assert "test_session.py" in page and ": y = x * 2.0" in page and "STEP_SCOPES" in page
    assert "op_callstack" not in page and "bias_after_scale" not in page, "nor what has its default"
    assert "&lt;x&gt;" in x._repr_html_() and "scale" in y.op._repr_html_() and "1 ops" in block._repr_html_()
    assert page.count("<table>") == page.count("</table>") and page.count("<details") == page.count("</details>")
    assert "text-align:left !important" in page, "notebooks set cells flush right"
    made = fluid.LoDTensor()
    assert "nothing stored" in made._repr_html_()
    made.set(np.arange(6.0).reshape(6, 1), fluid.CPUPlace())
    assert "<svg" not in made._repr_html_()
    made.set_lod([[0, 2, 6]])
    assert "[6, 1] float64, sequence lengths [[2, 4]]" in made._repr_html_()


def test_sequences_as_a_picture() -> None:
    made = fluid.LoDTensor()
    made.set(np.arange(60.0).reshape(60, 1), fluid.CPUPlace())
    made.set_lod([[0, 2, 3], [0, 4, 6, 60]])
    page = made._repr_html_()
    root = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    boxes = [r for r in root if r.tag.endswith("rect")]
    texts = [t.text for t in root if t.tag.endswith("text")]
    assert len(boxes) == 4 + 2 + 24 and "+30" in texts, "a long sequence is cut"
    assert len({r.get("fill") for r in boxes[:6]}) == 1 and boxes[6].get("fill") != boxes[5].get("fill")
    assert [texts[0], texts[5], texts[8]] == ["4", "2", "54"] and texts[1:5] == ["0", "1", "2", "3"]
    assert sum(e.tag.endswith("path") for e in root) == 2, "a bracket for each sequence of sequences"


def test_the_size_of_a_loaded_program() -> None:
    """A file does not say which variables are parameters; feed and fetch variables are none."""
    main = Program()
    with fluid.program_guard(main, Program()), fluid.unique_name.guard():
        y = fluid.layers.fc(fluid.data("x", [None, 3]), 4)
        fluid.io.prepend_feed_ops(main, ["x"])
        fluid.io.append_fetch_ops(main, [y.name])
    loaded = Program.parse_from_string(main.desc.serialize_to_string())
    assert str(loaded).splitlines()[0] == "Program: 4 ops, 2 persistable variables of 16 elements"


def test_a_program_as_text() -> None:
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3])
        y = fluid.layers.fc(fluid.layers.dropout(x, 0.3), 4, act="relu")
        fluid.optimizer.Adam(0.1).minimize(fluid.layers.mean(y))
    lines = str(main).splitlines()
    assert lines[0] == "Program: 12 ops, 2 parameters of 16 elements"
    assert "  data x: float32[?, 3]" in lines and "  parameter fc_0.w_0: float32[3, 4]" in lines
    assert "  kept by the optimizer: 9 variables" in lines
    assert "       1  fc_0.tmp_0 [?, 4] = mul(X=dropout_0.tmp_0, Y=fc_0.w_0)" in lines
    assert any(line.endswith("= dropout(X=x, dropout_prob=0.3)") for line in lines), "defaults are left out"
    assert any(line.endswith(': y = fluid.layers.fc(fluid.layers.dropout(x, 0.3), 4, act="relu")') for line in lines)
    assert sum(line.lstrip().startswith("# ") for line in lines) == 2, "each of the user's lines once"
    assert any(line.startswith("  backward, ops 5 to 9: fill_constant, mean_grad, relu_grad") for line in lines)
    assert "  optimizer, ops 10 to 11: adam 2" in lines
    whole = fluid.debugger.listing(main, folded=False)
    assert "= mul_grad(" in whole and whole.count("= adam(") == 2 and "fc_0.w_0_moment1_0: float32[3, 4]" in whole


def test_long_tables_are_cut() -> None:
    program = Program()
    for number in range(250):
        program.global_block().create_var(name=f"v{number}", shape=[1], dtype="float32")
    page = program._repr_html_()
    assert "v199" in page and "v200" not in page and "... and 50 more" in page
