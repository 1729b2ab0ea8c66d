"""Timing one peer. Runs under Python 3.7 too, for Paddle."""

import json
import resource
import time

RAGGED = (1, 10.0)  # windows, and how many CPU seconds steps are repeated for, of networks whose batches differ
_AGAIN = 40  # so often at most steps are repeated


def place(fluid):
    """Where Fluid's peers run: the first accelerator, as hand-written JAX and PyTorch do, or else the CPU."""
    return fluid.CUDAPlace(0) if fluid.is_compiled_with_cuda() else fluid.CPUPlace()


def measure(prepare, steps, windows=1, seconds=0.0):
    """Time ``prepare()``, which builds a model and returns a step function ``step(i)``, and its steps.

    Returns a dict: ``ready`` seconds of building, ``first`` seconds from the start of building to the end of the first
    step, ``step`` median seconds of a step after a tenth of them for warming up, ``first_cpu`` and ``cpu`` the same in
    CPU seconds of all threads, ``total`` and ``total_cpu`` seconds of everything, ``peak`` MB of resident memory.
    ``longest`` is the longest step after the first, ``later`` the seconds of repeated steps. With several ``windows``,
    for steps that are all alike, medians are those of the window of steps that has the smallest: what else runs on the
    machine comes and goes.

    Steps that are not alike are repeated, all of them, until they took ``seconds`` of CPU time: then medians are those
    of the time through them that has the smallest, as what is compiled beside the first ones comes and goes as well.
    All other numbers are of the first time.
    """
    start, start_cpu = time.perf_counter(), time.process_time()
    step = prepare()
    ready = time.perf_counter() - start
    step(0)
    first, first_cpu = time.perf_counter() - start, time.process_time() - start_cpu
    times, work = _timed(step, steps)
    total, total_cpu = time.perf_counter() - start, time.process_time() - start_cpu
    peak = _peak()
    end, passes = time.perf_counter(), [(times, work)]
    while time.process_time() - start_cpu < seconds and len(passes) < _AGAIN:
        passes.append(_timed(step, steps))
    return {
        "ready": ready,
        "first": first,
        "first_cpu": first_cpu,
        "step": min(_median(t, windows) for t, _ in passes),
        "cpu": min(_median(w, windows) for _, w in passes),
        "total": total,
        "total_cpu": total_cpu,
        "peak": peak,
        "longest": max(times),
        "later": time.perf_counter() - end,
    }


def _peak():
    """The most MB of memory that this process had resident."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024.0
    except (OSError, StopIteration):
        # What the process that started this one had resident counts here on Linux.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def _timed(step, steps):
    """The seconds and the CPU seconds of each step."""
    times, work = [], []
    for i in range(1, steps + 1):
        before, spent = time.perf_counter(), time.process_time()
        step(i)
        times.append(time.perf_counter() - before)
        work.append(time.process_time() - spent)
    return times, work


def _median(times, windows):
    """The smallest of the medians of so many windows of steps, without the first tenth of all."""
    steady = times[len(times) // 10 :]
    size = len(steady) // windows
    return min(sorted(steady[i * size : (i + 1) * size])[size // 2] for i in range(windows))


def report(result):
    """Print the result for the parent process, on a line of its own."""
    print("RESULT " + json.dumps(result), flush=True)
