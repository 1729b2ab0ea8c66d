"""``python -m benchmarks.fluid_worker fluidjax|paddle MODEL STEPS``: time one Fluid model in a process of its own."""

import sys
import time

import numpy

from benchmarks import fluid_models, fluid_sequences, fluid_streams
from benchmarks.measure import RAGGED, measure, place, report


def system(name):
    """The module that the models call ``fluid``."""
    if name == "paddle":
        import paddle.fluid as fluid
    else:
        import fluidjax as fluid
    return fluid


def prepare(fluid, build, as_numpy):
    """Build a model, run its startup program, and return its step function; cached programs are Paddle's fastest."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        loss, feeds = build(fluid)
    exe = fluid.Executor(place(fluid))
    exe.run(startup)

    def step(i):
        feed = feeds[i % len(feeds)]
        (value,) = exe.run(main, feed=feed, fetch_list=[loss], return_numpy=as_numpy, use_program_cache=True)
        return value if as_numpy else numpy.array(value)

    return step


def build_time(fluid):
    """Seconds to build the 1,000-op program with its backward pass."""
    start = time.perf_counter()
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        fluid_models.big_program(fluid)
    return {"build": time.perf_counter() - start}


def main():
    """Measure and report."""
    name, model, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    fluid = system(name)
    if model == "build_1000_ops":
        return report(build_time(fluid))
    build = dict(fluid_models.MODELS, **fluid_sequences.MODELS, **fluid_streams.MODELS)[model]
    as_numpy = model not in fluid_sequences.RAGGED_RESULT + fluid_streams.RAGGED_RESULT
    often = (9, 0) if model in fluid_models.MODELS else RAGGED
    return report(measure(lambda: prepare(fluid, build, as_numpy), steps, *often))


if __name__ == "__main__":
    main()
