"""What a cell shows of an error: the user's lines, and cells by their numbers."""

import json
import os
import re
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.notebook import tracebacks

ROOT = Path(__file__).parents[2]
L = fluid.layers


class Calls(fluid.dygraph.Layer):
    """Calls a function in its forward pass."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def shown(call):
    """The files whose frames a cell would show of the error of a call."""
    try:
        call()
    except BaseException as error:
        trace = tracebacks.of_users(error, error.__traceback__)
        return {Path(frame.filename).name for frame in traceback.extract_tb(trace)}
    raise AssertionError("nothing was raised")


def interrupted(_):
    raise KeyboardInterrupt


HERE = Path(__file__).name


def test_what_fluidjax_refuses():
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [None, 3])
        assert shown(lambda: L.conv2d(x, 3, 3)) == {HERE}
        assert shown(x.numpy) == {HERE}, "Fluid's AssertionError"
        assert shown(lambda: L.no_such_layer) == {HERE}


def test_through_layers_and_libraries():
    with fluid.dygraph.guard():
        rows = fluid.dygraph.to_variable(np.ones((2, 3), "float32"))
        assert shown(lambda: Calls(interrupted)(rows)) == {HERE}
        found = shown(lambda: Calls(lambda x: json.loads("{"))(rows))
        assert "decoder.py" in found and "layers.py" not in found, "where the user's own call fails is shown"


def test_what_may_be_a_bug_is_shown_whole():
    """An error that nobody raised on purpose: which line of fluidjax it is matters to who reports it."""
    assert "io.py" in shown(lambda: fluid.io.get_program_parameter("no program"))


def test_lines_of_a_terminal():
    """IPython without a notebook names its lines otherwise: they are the user's, on both sides of fluidjax."""
    terminal = {"Calls": Calls, "L": L}
    source = "def forward(x):\n    return L.conv2d(x, 3, 3)\nCalls(forward)(x)"
    call = compile(source, "<ipython-input-3-8da660ca8ded>", "exec")
    with fluid.dygraph.guard():
        terminal["x"] = fluid.dygraph.to_variable(np.ones((2, 3), "float32"))
        assert shown(lambda: exec(call, terminal)) == {HERE, "<ipython-input-3-8da660ca8ded>"}


def test_the_flag_shows_everything():
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [None, 3])
        fluid.set_flags({"FLAGS_call_stack_level": 2})
        try:
            assert "conv.py" in shown(lambda: L.conv2d(x, 3, 3))
        finally:
            fluid.set_flags({"FLAGS_call_stack_level": 1})


CELLS = (
    "import numpy as np\nimport fluidjax as fluid",
    "x = fluid.data('x', [None, 2])\ny = fluid.layers.fc(x, 3)",
    "fluid.Executor(fluid.CPUPlace()).run(feed={'x': np.ones((1, 2), 'float32')}, fetch_list=[y])",
    "fluid.layers.conv2d(x, 3, 3)",
    "fluid.layers.fc(x, 3, act='rellu')",
    "def mine(value):\n    raise ValueError('mine')\n"
    "out = fluid.default_main_program().current_block().create_var(name='out', dtype='float32', shape=[1, 2])\n"
    "fluid.layers.py_func(mine, x, out)\n"
    "fluid.Executor(fluid.CPUPlace()).run(feed={'x': np.ones((1, 2), 'float32')}, fetch_list=[out], use_prune=True)",
    "get_ipython().set_custom_exc((ValueError,), lambda *given, **named: print('mine'))\nfluid.notebook.watch_errors()",
    "int('no number')",
)


@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_in_a_kernel(tmp_path, monkeypatch):
    """Cells have the numbers that the page shows; who handles errors otherwise goes on doing so."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    resources = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources=resources, allow_errors=True
    )
    cells = client.execute().cells
    texts = ("\n".join(cell.outputs[0].traceback) for cell in cells[2:6])
    run, layer, act, function = (re.sub(r"\x1b\[[\d;]*m", "", text) for text in texts)
    assert "read by: Cell In[2], line 2, in <module> y = fluid.layers.fc(x, 3)" in run
    assert "'x' is not 4-D" in layer and "fluidjax/layers" not in layer
    assert "(at Cell In[5], line 1: fluid.layers.fc(x, 3, act='rellu'))" in act
    assert "in mine(value)" in function and "built at: Cell In[6], line 4" in function and "lowering/" not in function
    assert cells[7].outputs[0].text == "mine\n"
