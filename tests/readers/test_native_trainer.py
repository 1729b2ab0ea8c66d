"""core.Executor trains from a core.Dataset, with the numbers of Paddle 1.8.5."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import core
from fluidjax.trainer_factory import TrainerFactory


def _network() -> tuple[list[fluid.Variable], fluid.Variable]:
    slots = [
        fluid.data("label", [None, 1], "int64"),
        fluid.data("ids", [None, 1], "int64", lod_level=1),
        fluid.data("price", [None, 1], "float32"),
    ]
    tenth = fluid.initializer.Constant(0.1)
    rows = fluid.layers.embedding(slots[1], [10, 3], param_attr=fluid.ParamAttr("e", initializer=tenth))
    guess = fluid.layers.fc(fluid.layers.sequence_pool(rows, "sum"), 1, param_attr=fluid.ParamAttr("w", tenth))
    loss = fluid.layers.mean(fluid.layers.square(guess - slots[2]))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return slots, loss


def _dataset(kind: str, slots: list[fluid.Variable], folder: Path) -> core.Dataset:
    (folder / "a").write_text("1 1 2 3 4 1 0.5\n1 0 1 7 1 1.5\n1 1 3 1 2 3 1 2.5\n")
    (folder / "b").write_text("1 0 1 9 1 3.5\n1 1 2 8 8 1 4.5\n")
    front = fluid.DatasetFactory().create_dataset(kind)
    front.set_batch_size(2)
    front.set_use_var(slots)
    dataset = core.Dataset("MultiSlotDataset")
    dataset.set_data_feed_desc(front.desc())
    dataset.set_filelist([str(folder / "a"), str(folder / "b")])
    if kind == "InMemoryDataset":
        dataset.create_channel()
        dataset.load_into_memory()
        dataset.set_filelist([])
    dataset.create_readers()
    return dataset


def test_lines_of_a_described_data_set_have_ids_if_it_is_told(tmp_path: Path) -> None:
    with fluid.program_guard(fluid.Program()):
        ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
    front = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    front.set_use_var([ids])
    (tmp_path / "a").write_text("1 first 1 line 2 3 4\n1 second 1 line 1 7\n")
    dataset = core.Dataset("MultiSlotDataset")
    dataset.set_data_feed_desc(front.desc())
    dataset.set_filelist([str(tmp_path / "a")])
    dataset.set_parse_ins_id(True)
    dataset.set_parse_content(True)
    dataset.set_enable_pv_merge(False)
    dataset.load_into_memory()
    feeds = [np.array(feed["ids"]).ravel().tolist() for feed in dataset.feeds({"ids": ids})]
    assert (feeds, dataset.get_pv_data_size()) == ([[3, 4], [7]], 0)


@pytest.mark.parametrize("kind", ["QueueDataset", "InMemoryDataset"])
def test_one_pass(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        slots, loss = _network()
        fluid.Executor().run(startup)
    desc = TrainerFactory()._create_trainer()
    desc._set_program(main)
    desc._set_fetch_var_and_info([loss], ["loss"], 2)
    desc._gen_trainer_desc()
    place = core.Place()
    place.set_place(fluid.CPUPlace())
    executor = core.Executor(place)
    dataset = _dataset(kind, slots, tmp_path)
    trainer = executor.init_for_dataset(main.desc, desc._desc(), scope, dataset)
    assert isinstance(trainer, core.TrainerBase) and len(scope._kids()) == 1
    worker = trainer.get_worker_scope(0)
    assert worker.find_local_var(loss.name) is not None and worker.find_local_var("w") is None
    with pytest.raises(core.EnforceNotMet, match="no thread 1"):
        trainer.get_worker_scope(1)
    executor.run_from_dataset(trainer)
    said = capsys.readouterr().out  # of three batches the second is shown
    assert said.startswith("loss\tmean_0.tmp_0\t") and said.count("loss") == 1 and "data: [7.76452]" in said
    np.testing.assert_allclose(np.array(worker.find_var(loss.name).get_tensor()), [13.164847], rtol=1e-6)
    executor.release_trainer(trainer)
    dataset.destroy_readers()
    assert scope._kids() == []
    w, e = (np.array(scope.find_var(name).get_tensor()) for name in "we")
    np.testing.assert_allclose(w.ravel(), [0.36820602] * 3, rtol=1e-6)
    rows = [0.3, 0.38136995, 0.38136995, 0.39456993, 0.3132, 0.3, 0.3, 0.3441, 1.2712591, 0.4212258]
    np.testing.assert_allclose(e.sum(1), rows, rtol=1e-6)


def test_slots_that_a_program_does_not_know(tmp_path: Path) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        slots, _ = _network()
        dataset = _dataset("QueueDataset", slots, tmp_path)
    feeds = list(dataset.feeds({"price": slots[2]}))
    assert [sorted(feed) for feed in feeds] == [["price"]] * 3
    np.testing.assert_array_equal(np.concatenate([feed["price"] for feed in feeds]).ravel(), [0.5, 1.5, 2.5, 3.5, 4.5])
