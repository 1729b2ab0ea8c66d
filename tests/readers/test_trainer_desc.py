"""Descriptions of data feeds and trainers, and the native data set that is made from one."""

from __future__ import annotations

import threading
from types import SimpleNamespace as Obj

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import core
from fluidjax.proto import data_feed_pb2, trainer_desc_pb2

FEED = """name: "MultiSlotDataFeed"
batch_size: 2
multi_slot_desc {
  slots { name: "words" type: "uint64" }
  slots { name: "price" type: "float" is_used: true }
}
"""


def test_schemas_are_wire_compatible():
    """Numbers and types of fields, as Paddle 1.8.5's modules have them."""
    fields = trainer_desc_pb2.TrainerDesc.DESCRIPTOR.fields_by_name
    assert [fields[n].number for n in ("class_name", "thread_num", "hogwild_param", "data_desc")] == [1, 3, 101, 201]
    trainer = trainer_desc_pb2.TrainerDesc()
    assert (trainer.scale_datanorm, trainer.dump_file_num, trainer.downpour_param.push_dense) == (-1.0, 16, True)
    assert data_feed_pb2.DataFeedDesc().batch_size == 32
    assert data_feed_pb2.DataFeedDesc.DESCRIPTOR.full_name == "paddle.framework.DataFeedDesc"


def test_data_feed_desc(tmp_path):
    path = tmp_path / "feed"
    path.write_text(FEED)
    desc = fluid.DataFeedDesc(str(path))
    desc.set_batch_size(7)
    desc.set_dense_slots(["words"])
    desc.set_use_slots(["words"])
    slot = desc.proto_desc.multi_slot_desc.slots[0]
    assert slot.is_dense and slot.is_used and "batch_size: 7" in desc.desc() and 'pipe_command: "cat"' in desc.desc()
    path.write_text(FEED.replace("MultiSlotDataFeed", "Other"))
    with pytest.raises(ValueError, match="Other"):
        fluid.DataFeedDesc(str(path)).set_use_slots(["words"])


def test_native_dataset_reads_what_is_used(tmp_path):
    path = tmp_path / "part-0"
    path.write_text("2 11 12 1 0.5\n1 13 1 1.5\n")
    dataset = core.Dataset("MultiSlotDataset")
    dataset.set_filelist([str(path)])
    dataset.set_data_feed_desc(FEED)
    dataset.set_hdfs_config("name", "ugi")
    assert dataset.get_filelist() == [str(path)] and dataset.get_hdfs_config() == ("name", "ugi")
    dataset.load_into_memory()
    dataset.local_shuffle()
    assert dataset.get_memory_data_size() == 2
    np.testing.assert_array_equal(sorted(sample[0][0] for sample in dataset.samples), [0.5, 1.5])
    assert dataset.get_data_feed_desc().multi_slot_desc.slots
    dataset.set_fleet_send_batch_size(5)
    dataset.set_merge_by_lineid(2)
    dataset.merge_by_lineid()
    assert (dataset.get_fleet_send_batch_size(), dataset.get_memory_data_size()) == (5, 2)
    dataset.release_memory()
    dataset.set_parse_ins_id(False)
    dataset.preload_into_memory()
    dataset.wait_preload_done()
    assert dataset.get_shuffle_data_size() == 2
    with pytest.raises(core.EnforceNotMet, match="MultiSlotDataset"):
        core.Dataset("other")


def test_trainers_say_what_they_are():
    trainer = fluid.trainer_factory.TrainerFactory()._create_trainer()
    trainer._set_program(fluid.Program())
    trainer._set_thread(3)
    trainer._set_infer(True)
    trainer._set_fetch_var_and_info([Obj(name="loss")], ["the loss"], 10)
    trainer._gen_trainer_desc()
    desc = trainer_desc_pb2.TrainerDesc.FromString(trainer._desc())
    assert (desc.class_name, desc.device_worker_name, desc.thread_num) == ("MultiTrainer", "HogwildWorker", 3)
    assert list(desc.hogwild_param.skip_ops) == ["feed"] and desc.fetch_config.print_period == 10
    assert 'fetch_var_str_format: "the loss"' in str(trainer)


def test_settings_of_trainers():
    trainer = fluid.trainer_desc.DistMultiTrainer()
    trainer._set_dump_fields(["a", "b"])
    trainer._set_copy_table_config({"src_var_list": "x", "dest_var_list": "y", "dependency_map": {1: 2}})
    trainer._set_adjust_ins_weight({"nid_slot": "s"})
    assert list(trainer.proto_desc.dump_fields) == ["a", "b"]
    copied = trainer.proto_desc.copy_table_config
    assert (list(copied.src_var_list), copied.dense_pull_after_copy, copied.batch_num) == (["x"], True, 100)
    assert trainer.proto_desc.adjust_ins_weight_config.nid_slot == "s"
    with pytest.raises(ValueError, match="src_sparse_tables"):
        trainer._set_copy_table_config({"src_sparse_tables": [1, 2], "dest_sparse_tables": 1})
    with pytest.raises(RuntimeError, match="None Program"):
        trainer._gen_trainer_desc()


def downpour(program, worker: str, **options) -> trainer_desc_pb2.TrainerDesc:
    key = str(id(program))
    known = Obj(
        dense_table=[Obj(table_id=1, dense_variable_name=["w"], dense_gradient_variable_name=["w@GRAD"])],
        sparse_table=[Obj(table_id=0, slot_key=["k"], slot_value=["v"], slot_gradient=["g"])],
        skip_op=["lookup_table"],
    )
    tables = Obj(downpour_server_param=Obj(downpour_table_param=[Obj(accessor=Obj(fea_dim=11))]))
    program._fleet_opt = {
        "trainer": "DistMultiTrainer", "device_worker": worker, "fleet_desc": Obj(server_param=tables),
        "program_configs": {key: {"pull_sparse": [0], "push_sparse": [0], "pull_dense": [1], "push_dense": [1]}},
        "program_id_to_worker": {key: Obj(get_desc=lambda: known)}, "stat_var_names": ["s"], "use_cvm": False,
        "scale_datanorm": -1, **options,
    }  # fmt: skip
    trainer = fluid.trainer_factory.TrainerFactory()._create_trainer(program._fleet_opt)
    trainer._set_program(program)
    trainer._gen_trainer_desc()
    return trainer.proto_desc


def test_workers_know_their_tables():
    desc = downpour(fluid.Program(), "DownpourSGD")
    table = desc.downpour_param.sparse_table[0]
    assert (desc.device_worker_name, table.fea_dim, table.emb_dim, table.label_var_name) == (
        "DownpourWorker", 11, 9, "click"
    )  # fmt: skip
    assert list(desc.downpour_param.dense_table[0].dense_grad_name) == ["w@GRAD"]
    assert list(desc.pull_dense_param.dense_table[0].dense_value_name) == ["w"]
    assert downpour(fluid.Program(), "DownpourSGD", use_cvm=True).downpour_param.sparse_table[0].emb_dim == 11
    optional = downpour(fluid.Program(), "DownpourSGDOPT", local_tables=[0])
    assert optional.device_worker_name == "DownpourWorkerOpt" and optional.downpour_param.sparse_table[0].is_local
    hogwild = downpour(fluid.Program(), "Hogwild")
    assert list(hogwild.hogwild_param.skip_ops) == ["lookup_table"]
    assert hogwild.downpour_param.sparse_table[0].emb_dim == -1
    with pytest.raises(ValueError, match="program_id_to_worker"):
        downpour(fluid.Program(), "DownpourSGD", program_id_to_worker=None)


def test_sections_are_programs_at_places():
    part, program = fluid.Program(), fluid.Program()
    section = {"program": part, "input_set": ["x"], "output_set": ["y"]}
    program._pipeline_opt = {
        "queue_size": 3, "sync_steps": 1, "start_cpu_core_id": 0, "param_need_sync": ["w"],
        "section_program_list": [section], "place_list": [fluid.CPUPlace()], "concurrency_list": [2],
    }  # fmt: skip
    trainer = fluid.trainer_desc.PipelineTrainer()
    trainer._set_device_worker(fluid.device_worker.DeviceWorkerFactory()._create_device_worker("section"))
    trainer._set_program(program)
    trainer._gen_trainer_desc()
    config = trainer.proto_desc.section_param.section_config[0]
    assert (config.place, config.concurrency, list(config.section_in_var_names)) == (config.CPUPlace, 2, ["x"])
    assert config.program_desc == part.proto


def test_a_monitor_hands_arrays_to_its_handler():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [1])
    scope, seen, done = fluid.Scope(), [], threading.Event()
    scope.var("x").get_tensor().set(np.float32([3]), fluid.CPUPlace())

    class Watch(fluid.executor.FetchHandler):
        def handler(self, res_dict):
            seen.append(res_dict)
            done.set()

    monitor = fluid.trainer_factory.FetchHandlerMonitor(scope, Watch({"known": x}, period_secs=0.01))
    monitor.start()
    assert done.wait(120)
    monitor.stop()
    monitor.fetch_thread.join(120)
    assert not monitor.fetch_thread.is_alive() and seen[0]["known"] == [3.0]
