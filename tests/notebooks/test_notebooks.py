"""The notebooks run from top to bottom, and a cell that builds a network warns when it is run again."""

import os
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def execute(notebook, tmp_path, monkeypatch):
    """Run all cells in a new kernel, in an empty folder."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
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


def test_there_are_two_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["fluid_in_ten_minutes", "proving_gradients"]


@pytest.mark.filterwarnings("default::DeprecationWarning")  # of the packages that run notebooks
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path, tmp_path, monkeypatch):
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "notebooks are kept without outputs"
    done = execute(notebook, tmp_path, monkeypatch)
    assert outputs(done, "text/html"), "some value is shown as HTML"
    assert not [text for text in outputs(done, "stderr") if "Warning" in text]
    if path.stem == "fluid_in_ten_minutes":
        assert len(outputs(done, "image/png")) == 3


BUILD = "import fluidjax as fluid\nhidden = fluid.layers.fc(fluid.data('x', [None, 2]), size=3)"
GUARDED = "with fluid.program_guard(fluid.Program(), fluid.Program()):\n    fluid.layers.fc(fluid.data('x', [None, 2]), 3)"


@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_a_network_built_again_warns(tmp_path, monkeypatch):
    cells = [nbformat.v4.new_code_cell(source) for source in (BUILD, BUILD, GUARDED, GUARDED)]
    done = execute(nbformat.v4.new_notebook(cells=cells), tmp_path, monkeypatch)
    warned = ["program_guard" in "".join(o.get("text", "") for o in cell.outputs) for cell in done.cells]
    assert warned == [False, True, False, False]
