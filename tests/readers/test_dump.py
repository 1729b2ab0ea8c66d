"""Values that training on a data set writes to files, in the lines of Paddle 1.8.5."""

from __future__ import annotations

from pathlib import Path

import pytest

import fluidjax as fluid
from fluidjax.initializer import Constant

DATA = """3 0 2.5 0 1 0 1 0
3 1 2.5 1 2 1 2 1 0.333333
3 2 2.5 4 3 2 3 4 1 0.666667
"""
FIELDS = ["y", "x", "ids", "nothing"]
LINES = """\t\ty:1:0\tx:3:0:2.5:0\tids:1:0
\t\ty:1:0.333333\tx:3:1:2.5:1\tids:1:1:2
(0,w):0.120833:-0.291667:0.120833:0.0770833:0.0770833
(0,b):-0.216667
\t\ty:1:0.666667\tx:3:2:2.5:4\tids:1:2:3:4
"""


@pytest.mark.parametrize("fields", [FIELDS, []])
def test_fields_and_parameters_of_each_batch(tmp_path: Path, fields: list[str]) -> None:
    """1.8.5 writes all of it but the values of x, whose rows it takes for sequences; nothing without fields."""
    main, startup, exe = fluid.Program(), fluid.Program(), fluid.Executor()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
        ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
        rows = fluid.layers.embedding(ids, [10, 2], param_attr=fluid.ParamAttr("emb", Constant(0.5)))
        both = fluid.layers.concat([x, fluid.layers.sequence_pool(rows, "sum")], 1)
        out = fluid.layers.fc(both, 1, param_attr=fluid.ParamAttr("w", Constant(0.25)), bias_attr="b")
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.square_error_cost(out, y)))
    (tmp_path / "data").write_text(DATA)
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_batch_size(2)
    dataset.set_use_var([x, ids, y])
    dataset.set_filelist([str(tmp_path / "data")])
    main._fleet_opt = {
        **{"trainer": "MultiTrainer", "device_worker": "Hogwild", "mpi_rank": 3, "mpi_size": 4, "dump_file_num": 4},
        **{"dump_fields": fields, "dump_fields_path": str(tmp_path / "out"), "dump_param": ["w", "b", "none"]},
    }
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        exe.train_from_dataset(main, dataset)
    if not fields:
        assert not (tmp_path / "out").exists()
        return
    written = (tmp_path / "out" / "part-003-00000").read_text()
    assert written.startswith(LINES) and len(written.splitlines()) == 7
