"""Counting a program's ops and memory, and dealing batches out."""

import pytest

import fluidjax as fluid


def program():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [-1, 4])
        hidden = fluid.layers.fc(x, 8, act="relu")
        fluid.layers.fc(hidden, 2, act="relu")
    return main


def test_memory_usage_counts_results_once():
    low, high, unit = fluid.contrib.memory_usage(program(), 16)
    # Two fc layers: product, sum and relu each, of 8 and 2 floats a row.
    total = 16 * 3 * (8 + 2) * 4 / 1024
    assert unit == "KB"
    assert low == pytest.approx(total * 1.05)
    assert high == pytest.approx(total * 1.1)
    assert fluid.contrib.memory_usage(program(), 1) == (pytest.approx(126), pytest.approx(132), "B")


def test_memory_usage_complains():
    with pytest.raises(TypeError, match="takes a Program"):
        fluid.contrib.memory_usage("main", 1)
    with pytest.raises(ValueError, match="must be positive"):
        fluid.contrib.memory_usage(program(), 0)
    main = fluid.Program()
    with fluid.program_guard(main):
        fluid.layers.relu(fluid.data("x", [-1, -1]))
    with pytest.raises(ValueError, match="only one dim"):
        fluid.contrib.memory_usage(main, 1)


def test_op_freq_statistic():
    single, pairs = fluid.contrib.op_freq_statistic(program())
    assert single == [("mul", 2), ("elementwise_add", 2), ("relu", 2)]
    assert dict(pairs) == {"mul->elementwise_add": 2, "elementwise_add->relu": 2, "relu->mul": 1}
    assert pairs[-1] == ("relu->mul", 1)
    with pytest.raises(TypeError, match="takes a Program"):
        fluid.contrib.op_freq_statistic(None)


def test_distributed_batch_reader(monkeypatch):
    def batches():
        yield from range(5)

    monkeypatch.delenv("PADDLE_TRAINERS_NUM", raising=False)
    monkeypatch.delenv("PADDLE_TRAINER_ID", raising=False)
    assert list(fluid.contrib.distributed_batch_reader(batches)()) == [0, 1, 2, 3, 4]
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    assert list(fluid.contrib.distributed_batch_reader(batches)()) == [1, 3]
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    with pytest.raises(ValueError, match="PADDLE_TRAINER_ID is 2"):
        fluid.contrib.distributed_batch_reader(batches)
