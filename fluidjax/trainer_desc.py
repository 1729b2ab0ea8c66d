"""``fluid.trainer_desc``: how a dataset trains a program, as the message from which Fluid creates its trainers.

Here, the batches of a dataset are run sequentially (see ``Executor.train_from_dataset``); descriptions exist for the
scripts and tools that write and read them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import text_format

from fluidjax.proto import trainer_desc_pb2 as pb

__all__ = ["TrainerDesc", "MultiTrainer", "DistMultiTrainer", "PipelineTrainer"]

_COPIED = (
    ("src_sparse_tables", "dest_sparse_tables"),
    ("src_dense_tables", "dest_dense_tables"),
    ("src_var_list", "dest_var_list"),
)


class TrainerDesc:
    """A trainer's description, with one thread per processor unless changed by ``_set_thread``.

    Attributes:
        proto_desc: the TrainerDesc message.
    """

    def __init__(self) -> None:
        self.proto_desc = pb.TrainerDesc(thread_num=multiprocessing.cpu_count())
        self._fleet_desc: Any = None
        self._device_worker: Any = None
        self._program: Any = None
        self._infer = False

    # What goes into the message.

    def _set_fetch_var_and_info(self, fetch_vars: Sequence[Any], fetch_info: Iterable[str], print_period: int) -> None:
        config = self.proto_desc.fetch_config
        config.fetch_var_names.extend(var.name for var in fetch_vars)
        config.fetch_var_str_format.extend(list(fetch_info)[: len(fetch_vars)])
        config.print_period = print_period

    def _set_debug(self, debug: bool) -> None:
        self.proto_desc.debug = debug

    def _set_thread(self, thread_num: int) -> None:
        self.proto_desc.thread_num = thread_num

    def _set_use_cvm(self, use_cvm: bool = False) -> None:
        self.proto_desc.use_cvm = use_cvm

    def _set_no_cvm(self, no_cvm: bool = False) -> None:
        self.proto_desc.no_cvm = no_cvm

    def _set_scale_datanorm(self, scale_datanorm: float = -1) -> None:
        self.proto_desc.scale_datanorm = scale_datanorm

    def _set_dump_slot(self, dump_slot: bool) -> None:
        self.proto_desc.dump_slot = dump_slot

    def _set_mpi_rank(self, mpi_rank: int) -> None:
        self.proto_desc.mpi_rank = mpi_rank

    def _set_mpi_size(self, mpi_size: int) -> None:
        self.proto_desc.mpi_size = mpi_size

    def _set_dump_fields(self, dump_fields: Iterable[str]) -> None:
        self.proto_desc.dump_fields.extend(dump_fields)

    def _set_dump_fields_path(self, path: str) -> None:
        self.proto_desc.dump_fields_path = path

    def _set_dump_file_num(self, dump_file_num: int) -> None:
        self.proto_desc.dump_file_num = dump_file_num

    def _set_dump_converter(self, converter: str) -> None:
        self.proto_desc.dump_converter = converter

    def _set_dump_param(self, dump_param: Iterable[str]) -> None:
        self.proto_desc.dump_param.extend(dump_param)

    def _set_thread_barrier(self, thread_barrier: bool) -> None:
        self.proto_desc.thread_barrier = thread_barrier

    def _set_check_nan_var_names(self, check_nan_var_names: Iterable[str]) -> None:
        self.proto_desc.check_nan_var_names.extend(check_nan_var_names)

    def _set_loss_names(self, loss_names: Iterable[str]) -> None:
        self.proto_desc.loss_names.extend(loss_names)

    def _set_adjust_ins_weight(self, config_dict: Mapping[str, Any]) -> None:
        config = self.proto_desc.adjust_ins_weight_config
        for field in config.DESCRIPTOR.fields:
            setattr(config, field.name, config_dict.get(field.name, field.default_value))

    def _set_copy_table_config(self, config_dict: Mapping[str, Any]) -> None:
        config = self.proto_desc.copy_table_config
        for source, target in _COPIED:
            pairs = _as_list(config_dict.get(source, [])), _as_list(config_dict.get(target, []))
            if len(pairs[0]) != len(pairs[1]):
                raise ValueError(
                    f"len({source}) != len({target}), {len(pairs[0])} vs {len(pairs[1])}. Expected a target for each"
                    " source. Give as many of both"
                )
            getattr(config, source).extend(pairs[0])
            getattr(config, target).extend(pairs[1])
        for key, values in config_dict.get("dependency_map", {}).items():
            if len(_as_list(values)) != 1:
                raise ValueError(f"dependency len {len(values)} != 1. Expected one table for table {key}. Give one")
            config.table_denpendency_map.add(key=key, values=_as_list(values))
        config.need_copy = config_dict.get("need_copy", False)
        config.batch_num = config_dict.get("batch_num", 100)
        config.dense_pull_after_copy = config_dict.get("dense_pull_after_copy", True)
        config.enable_dependency = config_dict.get("enable_dependency", False)
        config.sparse_copy_by_feasign = config_dict.get("sparse_copy_by_feasign", True)

    # What the message is made from.

    def _set_device_worker(self, device_worker: Any) -> None:
        self._device_worker = device_worker

    def _set_infer(self, infer: bool) -> None:
        self._infer = infer

    def _set_fleet_desc(self, fleet_desc: Any) -> None:
        self._fleet_desc = fleet_desc

    def _set_program(self, program: Any) -> None:
        self._program = program

    def _gen_trainer_desc(self) -> None:
        """Write the class and its worker into the message; a no-op in this class."""

    def _desc(self) -> bytes:
        return self.proto_desc.SerializeToString()

    def __str__(self) -> str:
        return text_format.MessageToString(self.proto_desc)


class MultiTrainer(TrainerDesc):
    """Trains in several threads."""

    def _gen_trainer_desc(self) -> None:
        self.proto_desc.class_name = type(self).__name__
        self._device_worker._set_infer(self._infer)
        self._device_worker._set_program(self._program)
        self._device_worker._gen_worker_desc(self.proto_desc)


class _TrainerOfAProgram(MultiTrainer):
    def _gen_trainer_desc(self) -> None:
        if self._program is None:
            raise RuntimeError("None Program. Expected the program to train. Call _set_program before")
        super()._gen_trainer_desc()


class DistMultiTrainer(_TrainerOfAProgram):
    """Trains in several threads, with tables on servers."""


class PipelineTrainer(_TrainerOfAProgram):
    """Trains sections of a program in parallel."""


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
