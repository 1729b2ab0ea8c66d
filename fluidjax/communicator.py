"""Communicator: sends gradients and receives parameters on behalf of a program's ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.base.scope import global_scope
from fluidjax.distributed.communicator import Background, Communication, Stepwise, Synchronous
from fluidjax.distributed.geo import Geo
from fluidjax.distributed.parts import Target
from fluidjax.framework import Operator, Program
from fluidjax.transpiler.config import DistributedMode

__all__ = ["Communicator"]

_PREFIX = "communicator_"


class Communicator:
    """Communicates with parameter servers for one trainer, from ``start`` to ``stop``.

    Args:
        program: the trainer's program; its ``recv`` ops are disabled, since the communicator takes over their work.
        mode: a ``DistributedMode``.
        kwargs: for GEO, ``push_vars`` (location of parameters), ``trainers`` and ``push_nums`` (steps between
            exchanges); for SYNC, ``pserver_endpoints`` and ``trainer_id``.
        envs: Fluid's ``communicator_*`` flags as strings.
    """

    def __init__(
        self,
        program: Program,
        mode: int,
        kwargs: Mapping[str, Any] | None = None,
        envs: Mapping[str, str] = {},  # noqa: B006  (Fluid's default; it is only read)
    ) -> None:
        assert isinstance(program, Program), "Communicator: expected a Program. Pass the trainer's."
        ops = program.global_block().ops
        receives = [op for op in ops if op.type == "recv"]
        for op in receives:
            op._set_attr("do_not_run", True)
        settings = {key.removeprefix(_PREFIX): value for key, value in envs.items()}
        self._communication = _communication(ops, receives, mode, kwargs or {}, settings)

    def start(self) -> None:
        """Start; call it before the program runs or, in geo mode, before its startup program runs."""
        self._communication.start()

    def stop(self) -> None:
        """Send what is pending, and stop."""
        self._communication.stop()

    def is_running(self) -> bool:
        """Whether it is running."""
        return self._communication.is_running()


def _communication(
    ops: list[Operator], receives: list[Operator], mode: int, kwargs: Mapping[str, Any], settings: Mapping[str, str]
) -> Communication:
    scope = global_scope()
    if mode == DistributedMode.GEO:
        params = {name: _target(i["var_names"], i["epmap"], i["sections"]) for name, i in kwargs["push_vars"].items()}
        sparse = [name for name, info in kwargs["push_vars"].items() if info["is_sparse"] == ["True"]]
        return Geo(params, sparse, int(kwargs["trainers"]), int(kwargs["push_nums"]), scope)
    pushes = [op for op in ops if op.type == "send" and op.attr("send_varnames") and op.attr("use_send_handler")]
    sends = {
        op.input("X")[0]: _target(op.attr("send_varnames"), op.attr("epmap"), op.attr("sections")) for op in pushes
    }
    wanted = {
        op.output("Out")[0]: _target(op.attr("recv_varnames") or op.output("Out"), op.attr("epmap"), [])
        for op in receives
    }
    if mode == DistributedMode.SYNC:
        endpoints, trainer = list(kwargs["pserver_endpoints"]), int(kwargs["trainer_id"])
        return Synchronous(sends, wanted, scope, settings, endpoints=endpoints, trainer=trainer)
    if mode == DistributedMode.HALF_ASYNC:
        return Stepwise(sends, wanted, scope, settings)
    if mode == DistributedMode.ASYNC:
        return Background(sends, wanted, scope, settings)
    raise ValueError(
        explain("Communicator: unknown mode", "a DistributedMode", repr(mode), "pass DistributedMode.ASYNC or another")
    )


def _target(names: Any, endpoints: Any, sections: Any) -> Target:
    return Target(tuple(names), tuple(endpoints), tuple(map(int, sections)))
