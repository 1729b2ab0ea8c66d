"""``fluid.device_worker``: describes the work of a dataset trainer's threads."""

from __future__ import annotations

from typing import Any

from fluidjax.base.places import CPUPlace, CUDAPinnedPlace, CUDAPlace
from fluidjax.proto import trainer_desc_pb2 as pb

__all__ = ["DeviceWorker", "Hogwild", "DownpourSGD", "Section", "DownpourSGDOPT"]

_PLACES = ((CPUPlace, "CPUPlace"), (CUDAPlace, "CUDAPlace"), (CUDAPinnedPlace, "CUDAPinnedPlace"))


class DeviceWorker:
    """Base class of workers."""

    def __init__(self) -> None:
        self._program: Any = None
        self._infer: bool | None = None
        self._fleet_desc: Any = None

    def _set_infer(self, infer: bool = False) -> None:
        self._infer = infer

    def _set_fleet_desc(self, fleet_desc: Any) -> None:
        self._fleet_desc = fleet_desc

    def _set_program(self, program: Any) -> None:
        self._program = program

    def _gen_worker_desc(self, trainer_desc: pb.TrainerDesc) -> None:
        """Write the worker into a trainer's description."""
        raise NotImplementedError(
            f"{type(self).__name__} does not implement gen_worker_desc. Expected a worker that does, please use Hogwild"
            " or DownpourSGD, etc."
        )

    def _options(self) -> dict[str, Any]:
        if self._program is None:
            raise SystemExit("program of current device worker is not configured: call _set_program before")
        return getattr(self._program, "_fleet_opt", None) or {}


class Hogwild(DeviceWorker):
    """All threads read and write the same parameters."""

    def _gen_worker_desc(self, trainer_desc: pb.TrainerDesc) -> None:
        trainer_desc.device_worker_name = "HogwildWorker"
        hogwild = trainer_desc.hogwild_param
        if self._infer:
            hogwild.skip_ops.append("feed")
        options = self._options()
        if "fleet_desc" not in options:
            return  # no tables on servers
        worker = _write_tables(self, trainer_desc, options)
        for table, known in zip(trainer_desc.downpour_param.sparse_table, _accessors(self), strict=False):
            table.fea_dim, table.emb_dim, table.label_var_name = known.fea_dim, -1, ""
        hogwild.stat_var_names.extend(options["stat_var_names"])
        hogwild.skip_ops.extend(worker.skip_op)
        if self._infer:
            hogwild.skip_ops.extend(["push_sparse", "push_sparse_v2", "push_dense"])


class DownpourSGD(DeviceWorker):
    """Each thread pulls parameters from servers and pushes gradients."""

    _name = "DownpourWorker"

    def _gen_worker_desc(self, trainer_desc: pb.TrainerDesc) -> None:
        options = self._options()
        trainer_desc.device_worker_name = self._name
        worker = _write_tables(self, trainer_desc, options)
        downpour = trainer_desc.downpour_param
        shown = 0 if options["use_cvm"] or options.get("no_cvm") else 2  # the counts of shows and clicks
        for table, known in zip(downpour.sparse_table, _accessors(self), strict=False):
            table.fea_dim, table.emb_dim, table.label_var_name = known.fea_dim, known.fea_dim - shown, "click"
        downpour.skip_ops.extend(worker.skip_op)
        if self._infer:
            downpour.push_dense = downpour.push_sparse = False


class DownpourSGDOPT(DownpourSGD):
    """A DownpourSGD whose last sparse table may be local or pushed asynchronously."""

    _name = "DownpourWorkerOpt"

    def _gen_worker_desc(self, trainer_desc: pb.TrainerDesc) -> None:
        super()._gen_worker_desc(trainer_desc)
        options, table = self._options(), trainer_desc.downpour_param.sparse_table[-1]
        if table.table_id in options.get("local_tables", ()):
            table.is_local = True
        if table.table_id in options.get("async_tables", ()):
            table.is_async = True


class Section(DeviceWorker):
    """Each thread runs one section of the program and passes its results to the next."""

    def _gen_worker_desc(self, trainer_desc: pb.TrainerDesc) -> None:
        trainer_desc.device_worker_name = "SectionWorker"
        options, section = self._program._pipeline_opt, trainer_desc.section_param
        for name in ("queue_size", "sync_steps", "start_cpu_core_id"):
            setattr(section, name, options[name])
        section.param_need_sync.extend(options["param_need_sync"])
        parts = zip(options["section_program_list"], options["place_list"], options["concurrency_list"], strict=True)
        for part, place, concurrency in parts:
            section.section_config.add(
                program_desc=part["program"].proto,
                place=_place(place),
                concurrency=concurrency,
                section_in_var_names=part["input_set"],
                section_out_var_names=part["output_set"],
            )


class DeviceWorkerFactory:
    """Creates workers by name: ``hogwild``, ``section``."""

    def _create_device_worker(self, worker_type: str) -> DeviceWorker:
        return globals()[worker_type.capitalize()]()


def _accessors(worker: DeviceWorker) -> list[Any]:
    """The row layout of each table on the servers."""
    tables = worker._fleet_desc.server_param.downpour_server_param.downpour_table_param
    return [table.accessor for table in tables]


def _write_tables(worker: DeviceWorker, trainer_desc: pb.TrainerDesc, options: dict[str, Any]) -> Any:
    """Describe the tables that a program reads and writes; returns the fields of its worker's description.

    Raises ValueError if the options contain no worker for the program.
    """
    program_id = str(id(worker._program))
    downpour, pulled = trainer_desc.downpour_param, trainer_desc.pull_dense_param
    dense: set[int] = set()
    if (used := options["program_configs"].get(program_id)) is not None:
        downpour.program_config.add(
            program_id=program_id,
            **{f"{way}_table_id": used[way] for way in ("push_sparse", "push_dense", "pull_sparse", "pull_dense")},
        )
        dense = {*used["push_dense"], *used["pull_dense"]}
    pulled.device_num = trainer_desc.thread_num
    known = _worker_of(options, program_id).get_desc()
    for table in (t for t in known.dense_table if t.table_id in dense):
        names = table.dense_variable_name
        pulled.dense_table.add(table_id=table.table_id, dense_value_name=names)
        downpour.dense_table.add(
            table_id=table.table_id, dense_value_name=names, dense_grad_name=table.dense_gradient_variable_name
        )
    for table in known.sparse_table:
        downpour.sparse_table.add(
            table_id=table.table_id,
            sparse_key_name=table.slot_key,
            sparse_value_name=table.slot_value,
            sparse_grad_name=table.slot_gradient,
        )
    downpour.stat_var_names.extend(options["stat_var_names"])
    return known


def _worker_of(options: dict[str, Any], program_id: str) -> Any:
    if options.get("program_id_to_worker") is None:
        raise ValueError("opt_info must have program_id_to_worker: expected str(id(program)) -> worker. Give it")
    worker = options["program_id_to_worker"].get(program_id)
    if worker is None:
        raise ValueError(f"{program_id} not found in program_id_to_worker: expected a worker for the program. Add it")
    return worker


def _place(place: Any) -> int:
    for kind, name in _PLACES:
        if isinstance(place, kind):
            return pb.SectionConfig.Place.Value(name)
    raise NotImplementedError(
        f"SectionWorker only supports CPUPlace, CUDAPlace and CUDAPinnedPlace now: received {place!r}. Give one of them"
    )
