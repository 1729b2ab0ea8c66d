"""Eager mode beside its peers: our static program of the same net, hand-written JAX, Paddle 1.8.5 where it is found.

    python -m benchmarks.eager [mlp cnn lstm transformer dqn adds]

Per net and side: seconds to the tenth step, and the median of a step once nothing is compiled any more (CPU time of
the process on one core, which other work on the machine disturbs little), in microseconds.
"""

import functools
import importlib
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIDES = ("ours", "static", "jax", "paddle")


def measure(step, settle=lambda: None):
    """{tenth: seconds to the tenth step; step, wall: microseconds of CPU time and of all time}."""
    begin = time.time()
    for _ in range(10):
        step()
    tenth = time.time() - begin
    for _ in range(3):
        settle()
        for _ in range(8):
            step()
    seconds, walls = [], []
    for _ in range(50):
        begin, since = time.process_time(), time.perf_counter()
        step()
        seconds.append(time.process_time() - begin)
        walls.append(time.perf_counter() - since)
    return {"tenth": tenth, "step": 1e6 * sorted(seconds)[25], "wall": 1e6 * sorted(walls)[25]}


def _eager(module, name):
    from benchmarks import eager_models
    from benchmarks.measure import place

    fluid = importlib.import_module(module)
    settle = None
    if module == "fluidjax":
        blocks = importlib.import_module("fluidjax.eager.recorded.pending").recorder.blocks
        settle = functools.partial(blocks.wait, well=True)
    with fluid.dygraph.guard(place(fluid)):
        return measure(eager_models.MODELS[name](fluid), *([settle] if settle else []))


def work(side, name):
    """Measure one net on one side, in this process."""
    if side == "static":
        from benchmarks import eager_models, eager_static

        static = eager_static.adds if name == "adds" else lambda: eager_models.MODELS[name](eager_static.SHIM)
        return measure(static())
    if side == "jax":
        from benchmarks import eager_jax

        return measure(eager_jax.MODELS[name]())
    return _eager("fluidjax" if side == "ours" else "paddle.fluid", name)


def main():
    """Measure each net on each side, each in a process of its own."""
    names = sys.argv[1:] or ["mlp", "cnn", "lstm", "transformer", "dqn", "adds"]
    paddle = os.environ.get("PADDLE_PYTHON")
    for name in names:
        for side in SIDES:
            if side == "paddle" and not paddle:
                continue
            command = [paddle if side == "paddle" else sys.executable, "-m", "benchmarks.eager", "--work", side, name]
            if hasattr(os, "sched_setaffinity"):
                command = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] + command
            done = subprocess.run(command, cwd=HERE, capture_output=True)
            lines = [line for line in done.stdout.decode().splitlines() if line.startswith("{")]
            if not lines:
                print(f"{name:12} {side:7} {done.stderr.decode().strip()[-200:]}")
                continue
            found = json.loads(lines[-1])
            text = f"tenth step {found['tenth']:6.2f} s   step {found['step']:8.0f} us   wall {found['wall']:8.0f} us"
            print(f"{name:12} {side:7} {text}")
            sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        print(json.dumps(work(*sys.argv[2:4])))
    else:
        main()
