"""A second process finds what the first one compiled: nothing in a trace may depend on the order of a set."""

import os
import subprocess
import sys
from pathlib import Path

TRAIN = """
import numpy as np
import fluidjax as fluid
from fluidjax import layers

x = fluid.data("x", [None, 4], "float32", lod_level=1)
rnn = layers.DynamicRNN()
with rnn.block():
    row, rows = rnn.step_input(x), rnn.static_input(x)
    memory, other = rnn.memory(shape=[4], value=0.0), rnn.memory(shape=[4], value=1.0)
    hidden = layers.fc([row, memory, layers.sequence_pool(rows, "sum")], 4, act="tanh")
    rnn.update_memory(memory, hidden)
    rnn.update_memory(other, layers.elementwise_add(other, hidden))
    rnn.output(hidden, other)
first, second = (layers.sequence_last_step(value) for value in rnn())
loss = layers.mean(layers.elementwise_mul(first, second))
fluid.optimizer.Adam(0.1).minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
batch = fluid.create_lod_tensor(np.ones((6, 4), np.float32), [[1, 3, 2]], fluid.CPUPlace())
print(exe.run(feed={"x": batch}, fetch_list=[loss])[0])
"""


def compiled_programs(folder: Path, hash_seed: int) -> set[str]:
    """The names of what is in the cache after one run."""
    environment = {**os.environ, "FLAGS_compilation_cache_dir": str(folder), "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run([sys.executable, "-c", TRAIN], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {p.name for p in folder.rglob("*") if p.name.endswith(("-cache", ".entry"))}


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first = compiled_programs(tmp_path, 1)
    assert any(name.endswith(".entry") for name in first)
    assert compiled_programs(tmp_path, 2) == first
