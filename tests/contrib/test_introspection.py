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


def test_summary_counts_parameters_and_operations(capsys):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [-1, 3, 32, 32])
        hidden = fluid.layers.conv2d(x, 8, 3, padding=1, bias_attr=False)
        hidden = fluid.layers.batch_norm(hidden, act="relu")
        hidden = fluid.layers.conv2d(hidden, 8, 3, groups=4, use_cudnn=False)
        hidden = fluid.layers.pool2d(hidden, 2, "max", 2)
        fluid.layers.pool2d(hidden, global_pooling=True)
        fluid.layers.prelu(hidden, "channel")
        fluid.layers.fc(hidden, 10)
        steps = fluid.data("steps", [-1, 5, 6])
        for _ in range(2):
            fluid.layers.fc(steps, 4, num_flatten_dims=2, param_attr="shared", bias_attr=False)
    assert fluid.contrib.summary(main) is None
    lines = capsys.readouterr().out.splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[3:-4]] == [
        ["0", "conv2d", "(3, 32, 32)", "(8, 32, 32)", "216", "442368"],
        ["1", "batch_norm", "(8, 32, 32)", "(8, 32, 32)", "16", "16384"],
        ["2", "relu", "(8, 32, 32)", "(8, 32, 32)", "0", "8192"],
        ["3", "conv2d", "(8, 32, 32)", "(8, 30, 30)", "144", str(2 * 30 * 30 * 144)],
        ["4", "pool2d", "(8, 30, 30)", "(8, 15, 15)", "0", str(8 * 15 * 15 * 4)],
        ["5", "pool2d", "(8, 15, 15)", "(8, 1, 1)", "0", str(8 * 15 * 15)],
        ["6", "prelu", "(8, 15, 15)", "(8, 15, 15)", "8", str(8 * 15 * 15)],
        ["7", "mul", "(8, 15, 15)", "(10,)", "18000", "18000"],
        ["8", "mul", "(5, 6)", "(5, 4)", "24", str(5 * 24)],
        ["9", "mul", "(5, 6)", "(5, 4)", "24", str(5 * 24)],
    ]
    assert {len(line) for line in lines[:-3]} == {len(lines[0])}
    assert lines[-3] == "Total PARAMs: 18408(0.0184M)"
    assert lines[-2] == "Total FLOPs: 755184(0.00G)"


def test_summary_counts_recurrent_layers(capsys):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        rows = fluid.data("rows", [None, 16], lod_level=1)
        fluid.layers.dynamic_lstm(rows, 16, use_peepholes=False)
        fluid.layers.dynamic_lstmp(rows, 16, 3, use_peepholes=False)
        fluid.layers.dynamic_gru(fluid.data("thirds", [None, 12], lod_level=1), 4)
        steps = fluid.data("steps", [7, 2, 5])
        zeros = [fluid.layers.fill_constant([1, 2, 4], "float32", 0.0) for _ in range(2)]
        fluid.layers.lstm(steps, *zeros, 7, 4, 1)
    fluid.contrib.summary(main)
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[3:-3]]
    assert cells[:3] == [
        ["0", "lstm", "(16,)", "(4,)", str(4 * 16 + 16), str(4 * 16)],
        ["1", "lstmp", "(16,)", "(3,)", str(3 * 16 + 4 * 3 + 16), str(3 * 16 + 4 * 3)],
        ["2", "gru", "(12,)", "(4,)", str(4 * 12 + 12), str(4 * 12)],
    ]
    weights = 5 * 16 + 4 * 16 + 2 * 16
    assert cells[3][:2] == ["3", "cudnn_lstm"] and cells[3][4:] == [str(weights), str(7 * weights)]


def test_summary_of_open_shapes(capsys):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        fluid.layers.relu(fluid.data("x", [-1, 3, -1, -1]))
    fluid.contrib.summary(main)
    out = capsys.readouterr().out
    assert "(3, -1, -1) |      0 |     - |" in out and "Without 1 ops" in out and "Total FLOPs: 0(0.00G)" in out
    with pytest.raises(TypeError, match="takes a Program"):
        fluid.contrib.summary("main")
