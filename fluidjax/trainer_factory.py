"""``fluid.trainer_factory``: creates trainers from a program's options, and monitors variables during training."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from fluidjax import device_worker, trainer_desc
from fluidjax.base.scope import Scope
from fluidjax.dataset import FetchHandler
from fluidjax.framework import Variable

__all__ = ["TrainerFactory", "FetchHandler", "FetchHandlerMonitor"]

_SETTINGS = (
    *("dump_slot", "mpi_rank", "mpi_size", "dump_fields", "dump_fields_path", "dump_file_num", "dump_converter"),
    "dump_param",
)
_FLEET_SETTINGS = ("use_cvm", "no_cvm", "scale_datanorm", "adjust_ins_weight", "check_nan_var_names", "loss_names")


class TrainerFactory:
    """Creates trainers."""

    def _create_trainer(self, opt_info: dict[str, Any] | None = None) -> trainer_desc.TrainerDesc:
        """Create a trainer with its worker.

        Args:
            opt_info: the classes ("trainer", "device_worker") and their settings; by default MultiTrainer and Hogwild.
        """
        options = opt_info or {"trainer": "MultiTrainer", "device_worker": "Hogwild"}
        trainer = getattr(trainer_desc, options["trainer"])()
        worker = getattr(device_worker, options["device_worker"])()
        names: tuple[str, ...] = _SETTINGS
        if "fleet_desc" in options:
            names += _FLEET_SETTINGS
            worker._set_fleet_desc(options["fleet_desc"])
            trainer._set_fleet_desc(options["fleet_desc"])
            if options.get("copy_table") is not None:
                trainer._set_copy_table_config(options["copy_table"])
        for name in names:
            if options.get(name) is not None:
                getattr(trainer, f"_set_{name}")(options[name])
        trainer._set_device_worker(worker)
        return trainer


class FetchHandlerMonitor:
    """Periodically passes arrays of a scope's variables to a handler, in a thread.

    Args:
        scope: holds the variables.
        handler: a FetchHandler; it receives None for variables without a value (yet).
    """

    def __init__(self, scope: Scope, handler: FetchHandler):
        self.fetch_instance = handler
        self.fetch_thread = threading.Thread(target=self.handler_launch_func, args=(scope, handler), daemon=True)
        self._ended = threading.Event()

    def handler_launch_func(self, scope: Scope, handler: FetchHandler) -> None:
        """The body of the thread, until ``stop``."""
        wanted = {key: var.name for key, var in handler.var_dict.items() if isinstance(var, Variable)}
        while not self._ended.wait(handler.period_secs):
            handler.handler({key: _array(scope, name) for key, name in wanted.items()})

    def start(self) -> None:
        """Start monitoring."""
        self._ended.clear()
        self.fetch_thread.start()

    def stop(self) -> None:
        """Stop monitoring."""
        self._ended.set()


def _array(scope: Scope, name: str) -> np.ndarray | None:
    var = scope.find_var(name)
    tensor = None if var is None else var.get_tensor()
    return np.array(tensor) if tensor is not None and tensor._is_initialized() else None
