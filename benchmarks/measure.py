"""Timing one peer. Runs under Python 3.7 too, for Paddle."""

import json
import resource
import time


def measure(prepare, steps):
    """Time ``prepare()``, which builds a model and returns a step function ``step(i)``, and its steps.

    Returns a dict: ``first`` seconds from the start of building to the end of the first step, ``step`` median seconds
    of a step after a tenth of them for warming up, ``total`` seconds of everything, ``peak`` MB of resident memory.
    """
    start = time.perf_counter()
    step = prepare()
    step(0)
    first = time.perf_counter() - start
    times = []
    for i in range(1, steps + 1):
        before = time.perf_counter()
        step(i)
        times.append(time.perf_counter() - before)
    total = time.perf_counter() - start
    steady = sorted(times[len(times) // 10 :])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    return {"first": first, "step": steady[len(steady) // 2], "total": total, "peak": peak}


def report(result):
    """Print the result for the parent process, on a line of its own."""
    print("RESULT " + json.dumps(result), flush=True)
