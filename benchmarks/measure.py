"""Timing one peer. Runs under Python 3.7 too, for Paddle."""

import json
import resource
import time


def measure(prepare, steps, windows=1):
    """Time ``prepare()``, which builds a model and returns a step function ``step(i)``, and its steps.

    Returns a dict: ``first`` seconds from the start of building to the end of the first step, ``step`` median seconds
    of a step after a tenth of them for warming up, ``first_cpu`` and ``cpu`` the same in CPU seconds of all threads,
    ``total`` and ``total_cpu`` seconds of everything, ``peak`` MB of resident memory. ``longest`` is the longest step
    after the first. With several ``windows``, for steps that are all alike, medians are those of the window of steps
    that has the smallest: what else runs on the machine comes and goes.
    """
    start, start_cpu = time.perf_counter(), time.process_time()
    step = prepare()
    step(0)
    first, first_cpu = time.perf_counter() - start, time.process_time() - start_cpu
    times, work = [], []
    for i in range(1, steps + 1):
        before, spent = time.perf_counter(), time.process_time()
        step(i)
        times.append(time.perf_counter() - before)
        work.append(time.process_time() - spent)
    total, total_cpu = time.perf_counter() - start, time.process_time() - start_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    return {
        "first": first,
        "first_cpu": first_cpu,
        "step": _median(times, windows),
        "cpu": _median(work, windows),
        "total": total,
        "total_cpu": total_cpu,
        "peak": peak,
        "longest": max(times),
    }


def _median(times, windows):
    """The smallest of the medians of so many windows of steps, without the first tenth of all."""
    steady = times[len(times) // 10 :]
    size = len(steady) // windows
    return min(sorted(steady[i * size : (i + 1) * size])[size // 2] for i in range(windows))


def report(result):
    """Print the result for the parent process, on a line of its own."""
    print("RESULT " + json.dumps(result), flush=True)
