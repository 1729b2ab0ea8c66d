"""Each public writer, killed at each call that changes the disk: what loads then is the old or the new version."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from tests.crash.writers import WRITERS


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folders that killed writers left, and how many steps each writer has."""
    root = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.crash.writers", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=900)
    assert done.returncode == 0, done.stderr
    return root, json.loads(done.stdout.splitlines()[-1])


def versions(read, folder):
    """What the values are that a reader returns, or puts into the scope."""
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        found = read(str(folder))
        if found is None:
            found = {n: np.array(scope.find_var(n).get_tensor()) for n in scope.local_var_names()}
    arrays = found.values() if isinstance(found, dict) else found
    return {float(number) for array in arrays for number in np.asarray(array).ravel()}


@pytest.mark.parametrize("name", WRITERS)
def test_killed_at_each_step(killed, name):
    root, steps = killed
    assert steps[name] > 5
    seen = [versions(WRITERS[name].read, root / name / str(step)) for step in range(steps[name] + 1)]
    assert all(found in ({1.0}, {2.0}) for found in seen), f"a mixture, or nothing: {seen}"
    assert seen[0] == {1.0} and seen[-1] == {2.0}
