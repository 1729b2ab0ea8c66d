"""What only POSIX systems have is not needed to import, train, save, predict and use the command line."""

import subprocess
import sys

WITHOUT = """
import asyncio, builtins, importlib, os, pkgutil, sys, tempfile  # asyncio is Python's own, made for the system it is on
import jax, numpy as np

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "pwd", "grp", "termios"):
            raise ImportError(f"no module named {name}", name=name)

for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
def opened(file, *arguments, **more):
    if str(file).startswith("/proc/"):
        raise FileNotFoundError(file)
    return opens(file, *arguments, **more)

opens, builtins.open = builtins.open, opened
for name in ("sysconf", "getuid", "geteuid", "killpg", "setsid", "sched_getaffinity", "O_NOFOLLOW"):
    if hasattr(os, name):
        delattr(os, name)

import fluidjax as fluid
import lowering

for package in (fluid, lowering):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__") and ".served." not in module.name + ".":
            importlib.import_module(module.name)

x = fluid.data("x", [None, 3])
y = fluid.layers.fc(x, 2)
loss = fluid.layers.mean(y)
fluid.optimizer.SGD(0.1).minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
ones = {"x": np.ones((4, 3), "float32")}
first, second = (exe.run(feed=ones, fetch_list=[loss])[0] for _ in range(2))
assert second < first
folder = tempfile.mkdtemp()
fluid.io.save_inference_model(folder, ["x"], [y], exe)
program, _, fetches = fluid.io.load_inference_model(folder, exe)
assert exe.run(program, feed=ones, fetch_list=fetches)[0].shape == (4, 2)
memory = fluid.memory.of()
assert memory.used > 0 and memory.peak == memory.limit == 0

from fluidjax.command import cli
from fluidjax.launching.jobs import Member, run
assert cli.main(["doctor"]) == 0
assert cli.main(["info", folder]) == 0
os.name, os_name = "nt", os.name
try:
    waits = Member("waits", "", [sys.executable, "-c", "import time; time.sleep(60)"], {}, serves=True)
    fails = Member("fails", "", [sys.executable, "-c", "raise SystemExit(3)"], {})
    said = []
    assert run(lambda: [waits, fails], say=said.append) == 1
    assert said == ["fails failed with exit code 3; the other processes were ended"]
finally:
    os.name = os_name
"""


def test_a_process_without_what_only_posix_has():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
