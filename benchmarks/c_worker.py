"""``python c_worker.py MODULE FOLDER STEPS``: a program by one peer's Executor. Runs under Python 3.7."""

import importlib
import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.measure import measure, report  # noqa: E402


def main():
    """Measure steps of ``program`` on ``init.npz`` and ``feeds.npz``."""
    fluid = importlib.import_module(sys.argv[1])
    folder, steps = sys.argv[2], int(sys.argv[3])
    with open(os.path.join(folder, "job.json")) as file:
        job = json.load(file)

    def tensor(array, lod):
        value = fluid.LoDTensor()
        value.set(array, fluid.CPUPlace())
        if lod:
            value.set_lod(lod)
        return value

    def prepare():
        with open(os.path.join(folder, "program"), "rb") as file:
            program = fluid.Program.parse_from_string(file.read())
        with np.load(os.path.join(folder, "init.npz")) as init:
            for name in init.files:
                fluid.global_scope().var(name).get_tensor().set(init[name], fluid.CPUPlace())
        with np.load(os.path.join(folder, "feeds.npz")) as feeds:
            feed = {name: tensor(feeds[name], job["lod"].get(name)) for name in feeds.files}
        exe = fluid.Executor(fluid.CPUPlace())
        # Results are read in each step: XLA hands them out before they are computed.
        return lambda i: [np.array(value) for value in exe.run(program, feed, job["fetch"], return_numpy=False)]

    report(measure(prepare, steps, windows=3))


main()
