"""The Makefile's set-up: which Python it takes."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def activated(folder: pathlib.Path) -> str:
    """PATH with a new virtual environment in front that has no pip, as the Makefile makes them."""
    if subprocess.run([sys._base_executable, "-c", "import pip"]).returncode:
        pytest.skip("the Python that this environment was made from has no pip: make cannot use it")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])


def pythons_of_set_up(folder: pathlib.Path, path: str) -> dict[str, str]:
    """The module that each command of ``make demo``'s set-up starts, and the Python that it starts it with."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    run, env = ["make", "-n", ".venv/.with-demo"], {**os.environ, "PATH": path}
    made = subprocess.run(run, cwd=folder, env=env, capture_output=True, text=True, check=True)
    commands = [shlex.split(line) for line in made.stdout.splitlines()]
    return {words[2]: words[0] for words in commands if words[1] == "-m"}


def test_an_activated_environment_without_pip(tmp_path):
    """pip is asked for from the Python that the environment was made from."""
    path = activated(tmp_path / "active")
    pythons = pythons_of_set_up(tmp_path, path)
    assert pythons.keys() == {"venv", "pip"}
    for module, python in pythons.items():
        subprocess.run([python, "-c", f"import {module}"], env={"PATH": path}, check=True)


def test_its_own_environment_is_activated_and_older_than_pyproject(tmp_path):
    path = activated(tmp_path / ".venv")
    pythons = pythons_of_set_up(tmp_path, path)
    assert pythons.keys() == {"pip"}
    subprocess.run([pythons["pip"], "-c", "import pip"], env={"PATH": path}, check=True)


def test_no_python_with_pip(tmp_path):
    """Says what it looked for, and makes nothing."""
    shell = tmp_path / "shell"
    shell.mkdir()
    for tool in ("sh", "make", "test", "echo"):
        (shell / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    shutil.copy(ROOT / "Makefile", tmp_path)
    run = ["make", ".venv/bin/python"]
    made = subprocess.run(run, cwd=tmp_path, env={"PATH": str(shell)}, capture_output=True, text=True)
    assert made.returncode and "no CPython >= 3.11 with pip found" in made.stdout
    assert not (tmp_path / ".venv").exists()
