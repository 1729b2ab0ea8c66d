"""Values that training on a data set writes to files, in the lines of Paddle 1.8.5."""

from __future__ import annotations

from pathlib import Path

import pytest

import fluidjax as fluid
from fluidjax.initializer import Constant
from fluidjax.readers.dump import Dump

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


@pytest.mark.parametrize(("fields", "number", "files"), [(FIELDS, 4, 1), ([], 4, 0), (FIELDS, 12, 3)])
def test_fields_and_parameters_of_each_batch(tmp_path: Path, fields: list[str], number: int, files: int) -> None:
    """1.8.5 writes all of it but the values of x, whose rows it takes for sequences; nothing without fields."""
    (tmp_path / "data").write_text(DATA)
    _train(tmp_path, "QueueDataset", number, fields)
    paths = sorted((tmp_path / "out").glob("*"))
    assert [path.name for path in paths] == [f"part-003-{i:05d}" for i in range(files)]
    if files:
        shares = [path.read_text().splitlines(keepends=True) for path in paths]
        written = "".join(shares[i % files][i // files] for i in range(sum(map(len, shares))))
        assert written.startswith(LINES) and len(written.splitlines()) == 7


def _train(folder: Path, kind: str, number: int, fields: list[str], texts: bool = False) -> None:
    main, startup, exe = fluid.Program(), fluid.Program(), fluid.Executor()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
        ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
        rows = fluid.layers.embedding(ids, [10, 2], param_attr=fluid.ParamAttr("emb", Constant(0.5)))
        both = fluid.layers.concat([x, fluid.layers.sequence_pool(rows, "sum")], 1)
        out = fluid.layers.fc(both, 1, param_attr=fluid.ParamAttr("w", Constant(0.25)), bias_attr="b")
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.square_error_cost(out, y)))
    dataset = fluid.DatasetFactory().create_dataset(kind)
    dataset.set_batch_size(2)
    dataset.set_use_var([x, ids, y])
    dataset.set_filelist([str(folder / "data")])
    if texts:
        dataset.set_parse_ins_id(True)
        dataset.set_parse_content(True)
        dataset.load_into_memory()
    main._fleet_opt = {
        **{"trainer": "MultiTrainer", "device_worker": "Hogwild", "mpi_rank": 3, "mpi_size": 4},
        "dump_file_num": number,
        **{"dump_fields": fields, "dump_fields_path": str(folder / "out"), "dump_param": ["w", "b", "none"]},
    }
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        exe.train_from_dataset(main, dataset)


def test_ids_and_contents_of_examples(tmp_path: Path) -> None:
    lines = [f"1 id{i} 1 text{i} {line}" for i, line in enumerate(DATA.splitlines(keepends=True))]
    (tmp_path / "data").write_text("".join(lines))
    _train(tmp_path, "InMemoryDataset", 4, ["y"], texts=True)
    dumped = (tmp_path / "out" / "part-003-00000").read_text().splitlines()
    examples = [line for line in dumped if not line.startswith("(")]
    assert examples == ["id0\ttext0\ty:1:0", "id1\ttext1\ty:1:0.333333", "id2\ttext2\ty:1:0.666667"]


@pytest.mark.parametrize("number, rank, files", [(4, 0, 1), (3, 0, 1), (8, 1, 2), (7, 2, 2), (7, 3, 1), (None, 0, 4)])
def test_how_many_of_all_files_are_those_of_a_process(
    tmp_path: Path, number: int | None, rank: int, files: int
) -> None:
    asked = {"dump_fields": ["y"], "dump_fields_path": str(tmp_path), "mpi_rank": rank, "mpi_size": 4}
    Dump(fluid.Program().global_block(), asked | ({} if number is None else {"dump_file_num": number}))
    assert len(list(tmp_path.glob(f"part-{rank:03d}-*"))) == files
