"""The run in which a reader has no more batches: what of its program has run by then, as Paddle 1.8.5 has it."""

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers

CPU = fluid.CPUPlace()


def loader_of(x, batches, *, buffered=True):
    loader = fluid.io.DataLoader.from_generator([x], 4, use_double_buffer=buffered, iterable=False)
    return loader.set_batch_generator(lambda: ((np.full((2, 3), value, "f4"),) for value in batches))


def passes(run, loader, times):
    """What the runs of some passes give."""
    found = []
    for _ in range(times):
        loader.start()
        with pytest.raises(fluid.core.EOFException):
            while True:
                found.append([float(value[0]) for value in run()])
        loader.reset()
    return np.transpose(found)


# The rates of 12 runs, four a pass. Each pass takes five steps of the schedule: the counter stands in front of `read`.
RATES = {
    "exponential": [0.1, 0.1, 0.05, 0.05, 0.025, 0.0125, 0.0125, 0.00625, 0.003125, 0.003125, 0.0015625, 0.0015625],
    "natural": [0.1, 0.0778801, 0.0606531, 0.0472367, 0.0286505, 0.022313, 0.0173774, 0.0135335]
    + [0.0082085, 0.00639279, 0.00497871, 0.00387742],
    "inverse": [0.1, 0.08, 0.0666667, 0.0571429, 0.0444444, 0.04, 0.0363636, 0.0333333]
    + [0.0285714, 0.0266667, 0.025, 0.0235294],
    "polynomial": [0.1, 0.060625, 0.0325, 0.015625, 0.0226563, 0.015625, 0.0114063, 0.01]
    + [0.0125, 0.010625, 0.01, 0.0131641],
    "piecewise": [0.1, 0.1, 0.1, 0.05, 0.02, 0.02, 0.02, 0.01, 0.01, 0.01, 0.01, 0.01],
    "cosine": [0.1, 0.1, 0.1, 0.0853553, 0.0853553, 0.05, 0.05, 0.05, 0.0146447, 0.0146447, 0.0, 0.0],
    "warmup": [0.01, 0.0325, 0.055, 0.0775, 0.0176777, 0.0125, 0.00883884, 0.00625]
    + [0.003125, 0.00220971, 0.0015625, 0.00110485],
}
NOAM = [0.0481125, 0.096225, 0.144338, 0.125, 0.102062, 0.0944911, 0.0883883, 0.0833333]
NOAM += [0.0753778, 0.0721688, 0.0693375, 0.0668153]


def schedules():
    return [
        layers.exponential_decay(0.1, 2, 0.5, staircase=True),
        layers.natural_exp_decay(0.1, 2, 0.5),
        layers.inverse_time_decay(0.1, 2, 0.5),
        layers.polynomial_decay(0.1, 4, 0.01, 2.0, cycle=True),
        layers.piecewise_decay([3, 5, 8], [0.1, 0.05, 0.02, 0.01]),
        layers.cosine_decay(0.1, 3, 4),
        layers.linear_lr_warmup(layers.exponential_decay(0.1, 2, 0.5), 4, 0.01, 0.1),
    ]


@pytest.mark.parametrize("noam", [False, True])
def test_each_pass_counts_one_step_more_than_it_has_batches(noam):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        loader = loader_of(fluid.data("x", [None, 3]), range(4))
        rates = [layers.noam_decay(16, 3)] if noam else schedules()
        exe = fluid.Executor(CPU)
        exe.run(fluid.default_startup_program())
        found = passes(lambda: exe.run(fetch_list=rates), loader, 3)
    np.testing.assert_allclose(found, [NOAM] if noam else list(RATES.values()), rtol=1e-5, atol=1e-9)


def test_a_compiled_program_reads_first():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        loader = loader_of(fluid.data("x", [None, 3]), range(4))
        rate = layers.exponential_decay(0.1, 1, 0.5)
        exe = fluid.Executor(CPU)
        exe.run(fluid.default_startup_program())
        program = fluid.CompiledProgram(fluid.default_main_program())
        (found,) = passes(lambda: exe.run(program, fetch_list=[rate]), loader, 2)
    np.testing.assert_allclose(found, 0.1 * 0.5 ** np.arange(8), rtol=1e-6)


# Counters in front of both readers, between them and behind them, one in a loop; the sum of what the first has read.
# Two runs have data, three have none: the first reader's queue gives its batch away before the second one ends.
@pytest.mark.parametrize(
    ("batches", "test", "prune", "counts", "seen"),
    [
        ((2, 2), False, False, [5, 2, 2, 6], [6, 18]),
        ((3, 2), False, False, [5, 3, 2, 9], [6, 18, 36]),
        ((3, 2), True, False, [5, 3, 2, 9], [6, 18, 36]),
        ((2, 3), False, False, [5, 2, 2, 6], [6, 18]),
        ((3, 2), False, True, [0, 0, 0, 0], []),
    ],
)
def test_what_stands_in_front_of_a_reader_has_run_when_it_ends(batches, test, prune, counts, seen):
    calls = []
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        counters = [layers.create_global_var([1], 0.0, "float32", True, name=f"counter_{i}") for i in range(4)]
        total = layers.create_global_var([1], 0.0, "float32", True, name="total")
        layers.increment(counters[0])
        a = fluid.data("a", [None, 3])
        first = loader_of(a, [1.0, 2.0, 3.0][: batches[0]])
        layers.increment(counters[1])
        layers.assign(total + layers.reshape(layers.reduce_sum(a), [1]), total)
        layers.py_func(lambda value: calls.append(float(np.ravel(value)[0])), total, None)
        i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
        going = layers.less_than(i, n)
        with layers.While(going).block():
            layers.increment(counters[3])
            layers.increment(i)
            layers.less_than(i, n, cond=going)
        b = fluid.data("b", [None, 3])
        second = loader_of(b, [10.0, 11.0, 12.0][: batches[1]], buffered=False)
        layers.increment(counters[2])
        out = layers.reduce_sum(a * b) + fluid.data("d", [1])
        exe = fluid.Executor(CPU)
        exe.run(fluid.default_startup_program())
        program = fluid.default_main_program().clone(for_test=True) if test else fluid.default_main_program()
        first.start()
        second.start()
        feed = {"d": np.float32([0.5])}
        found = [exe.run(program, feed, [out], use_prune=prune)[0].item() for _ in range(2)]
        for _ in range(3):
            with pytest.raises(fluid.core.EOFException):
                exe.run(program, feed, [out], use_prune=prune)
        kept = [fluid.global_scope().find_var(counter.name).get_tensor() for counter in counters]
        assert found == [60.5, 132.5]
        assert [np.ravel(value).item() for value in kept] == counts
        assert calls == seen
