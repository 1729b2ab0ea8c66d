"""`fluidjax run`: unmodified scripts, and names that stand for fluidjax's own modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
from __future__ import print_function
import sys
import numpy
import paddle
import paddle.fluid as fluid
import paddle.fluid.core as core
import paddle.dataset.mnist as mnist
from paddle.fluid.layers import io as layers_io
from paddle.fluid.framework import Program, program_guard
from paddle.reader import shuffle
import helper

x = fluid.data('x', [None, 2])
block = fluid.default_main_program().global_block()
total = block.create_var(name='total', shape=[1], dtype='float32')
block.append_op(type='reduce_sum', inputs={'X': x}, outputs={'Out': total}, attrs={'reduce_all': True})
reader = paddle.batch(paddle.reader.shuffle(lambda: iter([([1., 2.],), ([3., 4.],)]), 10), batch_size=2)
exe = fluid.Executor(fluid.CPUPlace())
feeder = fluid.DataFeeder([x], fluid.CPUPlace())
for data in reader():
    print('sum', exe.run(feed=feeder.feed(data), fetch_list=[total])[0])

import fluidjax
assert paddle.fluid is fluid is fluidjax
assert core is fluidjax.core and core.EOFException is fluid.core.EOFException
assert Program is fluidjax.Program and layers_io is sys.modules['fluidjax.layers.io']
assert mnist is paddle.dataset.mnist and shuffle is paddle.reader.shuffle is fluid.io.shuffle
assert callable(paddle.batch) and callable(fluid.data)
import paddle.batch
assert callable(paddle.batch), 'importing the module leaves the function in place'
assert fluidjax.__spec__.name == 'fluidjax' and paddle.__spec__.name == 'fluidjax.paddle'
assert paddle.__version__ == paddle.version.full_version == '1.8.5'
assert __name__ == '__main__' and sys.argv[1:] == ['--epochs', '3']
try:
    import paddle.nonsense
except ImportError as error:
    print('as it should:', error)
print('helper', helper.VALUE, helper.fluid is fluid)
"""


def run(tmp_path, *arguments, **environment):
    command = [sys.executable, "-W", "error", "-m", "fluidjax.command.cli", *arguments]
    env = dict(os.environ, PYTHONPATH=str(ROOT), FLUIDJAX_CACHE_DIR=str(tmp_path / "cache"), **environment)
    return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900)


def test_an_unmodified_script(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "helper.py").write_text("import paddle.fluid as fluid\nVALUE = 7\n")
    done = run(tmp_path, "run", "project/train.py", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["sum [10.]", "as it should: No module named 'paddle.nonsense'", "helper 7 True"]


def test_a_command_imports_what_it_needs(tmp_path):
    """Neither what other commands do nor packages that a script may not use."""
    (tmp_path / "nothing.py").write_text(
        "import sys\nfor name in 'fluidjax.export', 'jax._src.pallas.core', 'PIL.Image', 'yaml', 'pyarrow':\n"
        "    assert name not in sys.modules, name\n"
    )
    done = run(tmp_path, "run", "nothing.py")
    assert done.returncode == 0, done.stderr


def test_a_module(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "main.py").write_text("import sys, paddle\nprint(sys.argv[1:], __name__)\n")
    done = run(tmp_path, "run", "-m", "package.main", "a", "-b")
    assert (done.returncode, done.stdout) == (0, "['a', '-b'] __main__\n"), done.stderr


def test_exit_status_and_tracebacks(tmp_path):
    (tmp_path / "stop.py").write_text("import sys\nsys.exit(5)\n")
    assert run(tmp_path, "run", "stop.py").returncode == 5
    (tmp_path / "wrong.py").write_text("def f():\n    raise KeyError('mistake')\n\nf()\n")
    done = run(tmp_path, "run", "wrong.py")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and 'wrong.py", line 4' in lines[1]
    assert lines[-1] == "KeyError: 'mistake'" and "runpy" not in done.stderr and "cli.py" not in done.stderr


def test_a_module_that_came_with_paddle(tmp_path):
    (tmp_path / "old.py").write_text("import rarfile\n")
    done = run(tmp_path, "run", "old.py")
    assert done.returncode == 1 and "pip install rarfile" in done.stderr
    (tmp_path / "typo.py").write_text("import numpi\n")
    assert "what to do" not in run(tmp_path, "run", "typo.py").stderr


def test_a_script_that_is_not_there(tmp_path):
    done = run(tmp_path, "run", "none.py")
    assert done.returncode == 2 and "no such file" in done.stderr and "what to do" in done.stderr
    assert run(tmp_path, "walk").returncode == 2
    assert "fluidjax" in run(tmp_path, "--version").stdout


def test_no_paddle_without_the_command(tmp_path):
    code = "import fluidjax, importlib.util; assert importlib.util.find_spec('paddle') is None"
    subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=str(ROOT)), check=True, cwd=tmp_path)


COMPILES = """
import paddle.fluid as fluid
import numpy as np
import jax
x = fluid.data('x', [64, 64])
block = fluid.default_main_program().global_block()
for i in range(3):
    out = block.create_var(name='y%d' % i, shape=[64, 64], dtype='float32')
    block.append_op(type='mul', inputs={'X': x, 'Y': x}, outputs={'Out': out})
    x = out
fluid.Executor().run(feed={'x': np.eye(64, dtype='float32')}, fetch_list=[x])
print(jax.config.jax_compilation_cache_dir)
"""


def test_the_compilation_cache(tmp_path):
    from fluidjax.command import cache as cli

    (tmp_path / "script.py").write_text(COMPILES)
    done = run(tmp_path, "run", "script.py")
    assert done.stdout.strip() == str(tmp_path / "cache"), done.stderr
    assert list((tmp_path / "cache" / "steps").iterdir())
    assert (
        run(tmp_path, "run", "script.py", JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own"))
        .stdout.strip()
        .endswith("own")
    )
    before = os.environ.pop("FLUIDJAX_CACHE_DIR", None)
    try:
        assert cli.folder().endswith(os.path.join("fluidjax", "xla"))
    finally:
        if before is not None:
            os.environ["FLUIDJAX_CACHE_DIR"] = before


def test_a_real_paddle_in_the_way(monkeypatch):
    import types

    from fluidjax.command import aliases

    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setitem(sys.modules, "paddle", types.ModuleType("paddle"))
    with pytest.raises(aliases.PaddleImportedError, match="what to do"):
        aliases.serve()


@pytest.mark.parametrize(
    "name, target",
    [
        ("paddle", "fluidjax.paddle"),
        ("paddle.fluid", "fluidjax"),
        ("paddle.fluid.layers.nn", "fluidjax.layers.nn"),
        ("paddle.dataset.mnist", "fluidjax.paddle.dataset.mnist"),
        ("paddle.fluidity", "fluidjax.paddle.fluidity"),
        ("paddlenlp", None),
    ],
)
def test_what_names_stand_for(name, target):
    from fluidjax.command import aliases

    assert aliases.target_of(name) == target


def test_a_notebook_extension_serves_paddle(tmp_path):
    pytest.importorskip("IPython")
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "shell.run_cell('%load_ext fluidjax\\nimport paddle.fluid as fluid\\nfrom paddle.fluid.layers import fc')\n"
        "assert shell.user_ns['fluid'].__name__ == 'fluidjax', shell.user_ns\n"
    )
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path), "FLUIDJAX_CACHE_DIR": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


INTERRUPTED = """
import os, signal, time
from lowering.engine.interrupts import uninterrupted

def compile():
    for _ in range({count}):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.02)

try:
    uninterrupted(compile)
except KeyboardInterrupt:
    print("raised afterwards")
"""


@pytest.mark.usefixtures("interrupts_arrive")
def test_a_second_ctrl_c_during_a_compilation_leaves_at_once(tmp_path):
    (tmp_path / "script.py").write_text(INTERRUPTED.format(count=1))
    done = run(tmp_path, "run", "script.py")
    assert done.stdout == "raised afterwards\n"
    (tmp_path / "script.py").write_text(INTERRUPTED.format(count=10**9))
    done = run(tmp_path, "run", "script.py")
    assert done.returncode == 130 and done.stdout == ""
    assert done.stderr.count("press Ctrl-C again to leave at once") == 1
