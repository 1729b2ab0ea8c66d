"""The same seed gives the same bits: in two processes, and with other programs run in between."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys, hashlib
import numpy as np
import fluidjax as fluid

def other(exe):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 3], "float32")
        out = fluid.layers.dropout(fluid.layers.fc(x, 2), 0.5)
        exe.run(startup)
        exe.run(main, {"x": np.ones((2, 3), "float32")}, [out])

main, startup = fluid.Program(), fluid.Program()
main.random_seed = startup.random_seed = 11
exe = fluid.Executor(fluid.CPUPlace())
between = sys.argv[1] == "between"
if between:
    other(exe)
with fluid.program_guard(main, startup), fluid.unique_name.guard():
    x = fluid.data("x", [None, 4], "float32")
    hidden = fluid.layers.dropout(fluid.layers.fc(x, 8, act="tanh"), 0.3)
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 1)))
    fluid.optimizer.Adam(0.1).minimize(loss)
digest = hashlib.sha256()
exe.run(startup)
for step in range(4):
    if between:
        other(exe)
    (value,) = exe.run(main, {"x": np.full((3, 4), step, "float32")}, [loss])
    digest.update(np.asarray(value).tobytes())
for var in main.all_parameters():
    digest.update(np.array(fluid.global_scope().find_var(var.name).get_tensor()).tobytes())
print(digest.hexdigest())
"""


def bits(mode: str) -> str:
    """What a process of its own trains to."""
    command = [sys.executable, "-c", SCRIPT, mode]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()[-1]


def test_the_same_bits_in_two_processes_and_with_other_programs_between() -> None:
    alone = bits("alone")
    assert len(alone) == 64 and alone == bits("between")
