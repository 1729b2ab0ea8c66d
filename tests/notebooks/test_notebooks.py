"""The notebooks run from top to bottom, and a cell that builds a network warns when it is run again."""

import os
import re
import runpy
from pathlib import Path

import pytest

import fluidjax as fluid

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib").use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
KERNEL = ("fluid_in_ten_minutes", "proving_gradients")
SCRIPT = ("eager_to_static", "from_opdesc_to_xla", "leaving_with_your_model", "ragged_data")


def sources(notebook):
    """Its cells of code; skips the test where a package that they import is not installed."""
    found = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    imported = re.findall(r"^(?:import|from) (\w+)", "\n".join(found), re.MULTILINE)
    for package in sorted({*imported} - {"paddle"}):  # which the notebook itself provides
        pytest.importorskip(package, reason=f"the notebook imports {package}: pip install '.[notebooks]'")
    return found


def execute(notebook, tmp_path, monkeypatch):
    """Run all cells in a new kernel, in an empty folder."""
    sources(notebook)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    client = nbclient.NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    return client.execute()


def outputs(notebook, kind):
    """All outputs of a kind: what cells printed ('stdout', 'stderr') or displayed (a MIME type)."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.get("name") == kind:
                found.append(output.text)
            elif kind in output.get("data", {}):
                found.append(output.data[kind])
    return found


def test_these_are_the_notebooks():
    assert {path.stem for path in NOTEBOOKS} == {*KERNEL, *SCRIPT, "chinese_word_segmentation"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored(path):
    """Each cell was executed, in order, without an error or a warning, and nothing tells of the machine."""
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [o for cell in cells for o in cell.outputs if o.output_type == "error"]
    assert not [text for text in outputs(notebook, "stderr") if "Warning" in text]
    assert any(outputs(notebook, kind) for kind in ("text/html", "image/svg+xml"))
    assert not re.search(r"(/tmp/|/home/|/root/|site-packages)", path.read_text())


@pytest.mark.filterwarnings("default::DeprecationWarning")  # of the packages that run notebooks
@pytest.mark.parametrize("name", KERNEL)
def test_notebook(name, tmp_path, monkeypatch):
    done = execute(nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4), tmp_path, monkeypatch)
    assert outputs(done, "text/html"), "some value is shown as HTML"
    assert not [text for text in outputs(done, "stderr") if "Warning" in text]
    if name == "fluid_in_ten_minutes":
        assert len(outputs(done, "image/png")) == 3


def run_as_script(path, folder, monkeypatch):
    """Run the cells one after the other in this process: what was compiled here is not compiled again."""
    script = folder / f"{path.stem}.py"
    script.write_text("\n".join(sources(nbformat.read(path, as_version=4))))
    monkeypatch.chdir(folder)
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        try:
            return runpy.run_path(str(script))
        finally:
            fluid.disable_dygraph()
            pyplot.close("all")


@pytest.mark.filterwarnings("default::DeprecationWarning")
@pytest.mark.parametrize("name", SCRIPT)
def test_notebook_as_a_script(name, tmp_path, monkeypatch):
    found = run_as_script(ROOT / "notebooks" / f"{name}.ipynb", tmp_path, monkeypatch)
    if name == "ragged_data":
        assert len(found["compilations"]) < len(found["sizes"]) and found["losses"][-1] < found["losses"][0]
    elif name == "eager_to_static":
        assert found["report"].ok and found["losses"][-1] < 0.02
    elif name == "leaving_with_your_model":
        assert found["accuracy"](found["tuned"]) > 0.8 > found["accuracy"](found["parameters"])


@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_the_notebook_on_chinese_words(tmp_path, monkeypatch):
    path = ROOT / "notebooks" / "chinese_word_segmentation.ipynb"
    done = execute(nbformat.read(path, as_version=4), tmp_path, monkeypatch)
    assert "我 / 来到 / 北京清华大学" in "".join(outputs(done, "stdout"))


BUILD = "import fluidjax as fluid\nhidden = fluid.layers.fc(fluid.data('x', [None, 2]), size=3)"
GUARDED = "with fluid.program_guard(fluid.Program(), fluid.Program()):\n    fluid.layers.fc(fluid.data('x', [None, 2]), 3)"


@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_a_network_built_again_warns(tmp_path, monkeypatch):
    cells = [nbformat.v4.new_code_cell(source) for source in (BUILD, BUILD, GUARDED, GUARDED)]
    done = execute(nbformat.v4.new_notebook(cells=cells), tmp_path, monkeypatch)
    warned = ["program_guard" in "".join(o.get("text", "") for o in cell.outputs) for cell in done.cells]
    assert warned == [False, True, False, False]
