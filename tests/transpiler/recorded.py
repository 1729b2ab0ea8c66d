"""Transpilations by Paddle 1.8.5, and programs in a form in which two of them can be compared.

``data/NAME`` holds the programs after ``minimize``, what each role got (gzip, ProgramDesc), and in ``meta.json`` how
they were transpiled.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
from pathlib import Path
from typing import Any

import fluidjax as fluid
from fluidjax.framework.attrs import read_attr
from fluidjax.proto import framework_pb2 as pb
from fluidjax.transpiler import ps_dispatcher
from fluidjax.transpiler.geo_sgd_transpiler import GeoSgdTranspiler

DATA = Path(__file__).parent / "data"
NAMES = sorted(path.parent.name for path in DATA.glob("*/meta.json"))
_CONTROL = re.compile(r"@0\.\d+(e-\d+)?$")
_UNSEEN = {"op_callstack", "op_namescope", "rpc_get_thread_num", "rpc_send_thread_num", "rpc_prefetch_thread_num"}
_SETS = {"grad_to_block_id", "sparse_grad_to_param"}


def meta_of(name: str) -> dict[str, Any]:
    """How a recording was made."""
    return json.loads((DATA / name / "meta.json").read_text())


def message(name: str, file: str) -> pb.ProgramDesc:
    """A recorded program."""
    return pb.ProgramDesc.FromString(gzip.decompress((DATA / name / f"{file}.bin").read_bytes()))


def program(name: str, file: str, info: dict[str, Any]) -> fluid.Program:
    """A recorded program that knows its parameters and its seed, which a message does not hold."""
    found = fluid.Program.parse_from_string(message(name, file).SerializeToString())
    found.random_seed = info["random_seed"]
    block = found.global_block()
    for entry in info["params"]:
        var = block.vars.pop(entry["name"], None)
        if var is not None:
            block.vars[var.name] = param = fluid.framework.Parameter._of(block, var.proto)
            param.trainable, param.is_distributed = entry["trainable"], entry["is_distributed"]
    return found


def transpiled(name: str, role: str) -> tuple[fluid.Program, fluid.Program, Any]:
    """The main and startup programs of a role as they come out now, and the transpiler."""
    meta = meta_of(name)
    config = fluid.DistributeTranspilerConfig()
    for key, value in meta["config"].items():
        setattr(config, key, getattr(ps_dispatcher, value) if key == "split_method" else value)
    main, startup = program(name, "origin_main", meta["main"]), program(name, "origin_startup", meta["startup"])
    kind, _, who = role.partition("_")
    number = int(who) if kind == "trainer" else 0
    settings = dict(meta["transpile"])
    if meta.get("endpoint_of_trainer"):
        settings["current_endpoint"] = meta["endpoint_of_trainer"][number]
    maker = GeoSgdTranspiler if meta["transpiler"] == "GeoSgdTranspiler" else fluid.DistributeTranspiler
    with fluid.unique_name.guard("dist_"), fluid.program_guard(main, startup):
        transpiler = maker(config)
        transpiler.transpile(number, program=main, startup_program=startup, **settings)
        if kind == "pserver":
            return *transpiler.get_pserver_programs(who), transpiler
        if config.mode == "pserver":
            return transpiler.get_trainer_program(wait_port=False), startup, transpiler
        return main, startup, transpiler


class Comparable:
    """A program as plain data: control variables numbered by first use, and what has no order sorted."""

    def __init__(self, desc: pb.ProgramDesc) -> None:
        self.numbers = (f"control {i}" for i in itertools.count())
        self.names: dict[str, str] = {}
        self.blocks = [
            (block.idx, block.parent_idx, _sorted_fakes([self._op(op) for op in block.ops])) for block in desc.blocks
        ]
        self.vars = [dict(self._var(var) for var in block.vars) for block in desc.blocks]

    def _name(self, name: str) -> str:
        if not _CONTROL.search(name):
            return name
        if name not in self.names:
            self.names[name] = next(self.numbers)
        return self.names[name]

    def _slots(self, slots: Any) -> dict[str, list[str]]:
        used = sorted((slot for slot in slots if slot.arguments), key=lambda slot: slot.parameter)
        return {slot.parameter: [self._name(name) for name in slot.arguments] for slot in used}

    def _op(self, op: pb.OpDesc) -> Any:
        attrs = {attr.name: (attr.type, read_attr(attr)) for attr in op.attrs if attr.name not in _UNSEEN}
        kept = {
            name: (kind, sorted(value) if name in _SETS else value) for name, (kind, value) in attrs.items() if value
        }
        return op.type, self._slots(op.inputs), self._slots(op.outputs), kept

    def _var(self, var: pb.VarDesc) -> tuple[str, Any]:
        kind = var.type.type
        holder = {7: var.type.lod_tensor.tensor, 8: var.type.selected_rows}.get(kind)
        described = None if holder is None or _CONTROL.search(var.name) else (holder.data_type, tuple(holder.dims))
        level = var.type.lod_tensor.lod_level if kind == 7 else 0
        return self._name(var.name), (kind, described, level, var.persistable)


def _sorted_fakes(ops: list[Any]) -> list[Any]:
    """Fluid takes sparse tables from a set: the order of their fake_init ops is not defined."""
    runs = [list(run) for _, run in itertools.groupby(ops, lambda op: op[0] == "fake_init")]
    return [op for run in runs for op in (sorted(run, key=str) if run[0][0] == "fake_init" else run)]
