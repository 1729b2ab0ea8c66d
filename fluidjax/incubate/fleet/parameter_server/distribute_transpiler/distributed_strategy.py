"""Strategies for synchronising workers and parameter servers."""

from __future__ import annotations

import os
from typing import Any

from fluidjax.compiler import BuildStrategy, ExecutionStrategy
from fluidjax.transpiler.config import DistributedMode, DistributeTranspilerConfig, ServerRuntimeConfig

__all__ = [
    "TrainerRuntimeConfig",
    "DistributedStrategy",
    "SyncStrategy",
    "AsyncStrategy",
    "HalfAsyncStrategy",
    "GeoStrategy",
    "StrategyFactory",
]

_STEPWISE = ("max_merge_var_num", "send_wait_times", "thread_pool_size", "send_queue_size")
_GEO = ("thread_pool_size", "send_wait_times")


def _threads() -> str:
    return os.getenv("CPU_NUM", "1")


class TrainerRuntimeConfig:
    """The ``communicator_*`` flags of a worker, from FLAGS_communicator_* in the environment.

    Attributes:
        mode: a ``DistributedMode``.
        runtime_configs: all flags, as strings.

    Flags:
        communicator_max_merge_var_num: how many gradients of a parameter are merged before they are sent, at most.
        communicator_is_sgd_optimizer: whether they are merged to their sum; else to their mean.
        communicator_send_queue_size: how many may wait, in the async mode.
        communicator_min_send_grad_num_before_recv: how many are sent before parameters are received, in the async mode.
        communicator_independent_recv_thread: changes nothing: a thread of its own receives in the async mode.
        communicator_thread_pool_size, communicator_send_wait_times: change nothing: all servers are asked at once, and
            threads are woken by what they wait for.
        rpc_deadline, rpc_retry_times: change nothing, as in Fluid: requests heed FLAGS_rpc_deadline and
            FLAGS_rpc_retry_times.
    """

    def __init__(self) -> None:
        self.mode: int | None = None
        defaults = {
            "communicator_max_merge_var_num": _threads(),
            "communicator_send_queue_size": _threads(),
            "communicator_independent_recv_thread": "1",
            "communicator_min_send_grad_num_before_recv": _threads(),
            "communicator_thread_pool_size": "5",
            "communicator_send_wait_times": "5",
            "communicator_is_sgd_optimizer": "1",
            "rpc_deadline": "180000",
            "rpc_retry_times": "3",
        }
        self.runtime_configs = {key: os.getenv(f"FLAGS_{key}", value) for key, value in defaults.items()}

    def get_communicator_flags(self) -> dict[str, str]:
        """The flags used by the mode; in step-based modes, a worker sends as often as it has threads."""
        if self.mode is None or self.mode == DistributedMode.ASYNC:
            keys = list(self.runtime_configs)
        elif self.mode in (DistributedMode.SYNC, DistributedMode.HALF_ASYNC):
            keys = [f"communicator_{key}" for key in _STEPWISE]
            for key in ("communicator_max_merge_var_num", "communicator_send_queue_size"):
                self._force(key, _threads())
        elif self.mode == DistributedMode.GEO:
            keys = [f"communicator_{key}" for key in _GEO]
        else:
            raise ValueError("Unsupported Mode")
        return {key: str(self.runtime_configs[key]) for key in keys}

    def _force(self, key: str, value: str) -> None:
        found = self.runtime_configs[key]
        if found != value:
            print(
                f"WARNING: In sync or half_async mode, {key} must be equal to CPU_NUM. But received, {key} = {found},"
                f" CPU_NUM = {value}. {key} will be forced to {value}."
            )
            self.runtime_configs[key] = value

    def display(self, configs: dict[str, str]) -> str:
        """Format settings as a table."""
        lines = [f"{'TrainerRuntimeConfig Overview':^45s}{'Value':<5s}", "-" * 50]
        lines += [f"{key:<45s}{value:<5s}" for key, value in configs.items()]
        return "\n".join(["", "=" * 50, *lines, "=" * 50, ""])

    def __repr__(self) -> str:
        return self.display(self.get_communicator_flags())


class DistributedStrategy:
    """Settings of programs, workers and servers; subclasses restrict them to one mode."""

    _mode: int | None = None
    _program: dict[str, bool] = {}
    _barrier = False

    def __init__(self) -> None:
        self._program_config = DistributeTranspilerConfig()
        self._trainer_runtime_config = TrainerRuntimeConfig()
        self._server_runtime_config = ServerRuntimeConfig()
        self._execute_strategy = ExecutionStrategy()
        self._build_strategy = BuildStrategy()
        _set(self._execute_strategy, {"num_threads": int(_threads())}, ExecutionStrategy, "execute_strategy")
        if int(_threads()) > 1:
            self._build_strategy.reduce_strategy = BuildStrategy.ReduceStrategy.Reduce
        self.debug_opt: Any = None
        if self._mode is not None:
            self.check_program_config()
            self.check_trainer_runtime_config()
            self.check_server_runtime_config()
            self.check_build_strategy()
            self.check_execute_strategy()

    def set_debug_opt(self, opt_info: Any) -> None:
        """Set what to dump."""
        self.debug_opt = opt_info

    def get_debug_opt(self) -> dict[str, Any]:
        """What to dump, with defaults filled in; empty if not set."""
        if not isinstance(self.debug_opt, dict):
            return {}
        asked = self.debug_opt.get
        return {
            "dump_slot": bool(asked("dump_slot", 0)),
            "dump_converter": str(asked("dump_converter", "")),
            "dump_fields": asked("dump_fields", []),
            "dump_file_num": asked("dump_file_num", 16),
            "dump_fields_path": asked("dump_fields_path", ""),
            "dump_param": asked("dump_param", []),
        }

    def get_program_config(self) -> DistributeTranspilerConfig:
        """The configuration of programs."""
        return self._program_config

    def set_program_config(self, config: Any) -> None:
        """Set the configuration of programs: a DistributeTranspilerConfig, or some of its attributes by name."""
        self._program_config = _set(self._program_config, config, DistributeTranspilerConfig, "program_config")
        self.check_program_config()

    def check_program_config(self) -> None:
        """Restrict it to the mode."""
        self._check_mode("check_program_config")
        for name, value in self._program.items():
            setattr(self._program_config, name, value)

    def get_trainer_runtime_config(self) -> TrainerRuntimeConfig:
        """The communication settings of workers."""
        return self._trainer_runtime_config

    def set_trainer_runtime_config(self, config: Any) -> None:
        """Set how workers communicate: a TrainerRuntimeConfig, or some of its settings by name."""
        if isinstance(config, dict):
            known = self._trainer_runtime_config.runtime_configs
            for key, value in config.items():
                if key not in known:
                    raise ValueError(f"TrainerRuntimeConfig doesn't have key: {key}")
                known[key] = value
        else:
            self._trainer_runtime_config = _set(None, config, TrainerRuntimeConfig, "trainer_runtime_config")
        self.check_trainer_runtime_config()

    def check_trainer_runtime_config(self) -> None:
        """Restrict it to the mode."""
        self._check_mode("check_trainer_runtime_config")
        self._trainer_runtime_config.mode = self._mode

    def get_server_runtime_config(self) -> ServerRuntimeConfig:
        """The numbers of server threads."""
        return self._server_runtime_config

    def set_server_runtime_config(self, config: Any) -> None:
        """Set the numbers of server threads: a ServerRuntimeConfig, or some of its attributes by name."""
        self._server_runtime_config = _set(
            self._server_runtime_config, config, ServerRuntimeConfig, "server_runtime_config"
        )
        self.check_server_runtime_config()

    def check_server_runtime_config(self) -> None:
        """A no-op: all settings are allowed in every mode."""
        self._check_mode("check_server_runtime_config")

    def get_execute_strategy(self) -> ExecutionStrategy:
        """How a worker runs its program."""
        return self._execute_strategy

    def set_execute_strategy(self, config: Any) -> None:
        """Set how a worker runs its program: an ExecutionStrategy, or some of its attributes by name."""
        self._execute_strategy = _set(self._execute_strategy, config, ExecutionStrategy, "execute_strategy")
        self.check_execute_strategy()

    def check_execute_strategy(self) -> None:
        """Restrict it to the mode."""
        self._check_mode("check_execute_strategy")
        if self._barrier:
            self._execute_strategy.use_thread_barrier = True

    def get_build_strategy(self) -> BuildStrategy:
        """How a worker's program is built."""
        return self._build_strategy

    def set_build_strategy(self, config: Any) -> None:
        """Set how a worker's program is built: a BuildStrategy, or some of its attributes by name."""
        self._build_strategy = _set(self._build_strategy, config, BuildStrategy, "build_strategy")
        self.check_build_strategy()

    def check_build_strategy(self) -> None:
        """Restrict it to the mode."""
        self._check_mode("check_build_strategy")
        self._build_strategy.async_mode = True

    def _check_mode(self, method: str) -> None:
        if self._mode is None:
            raise NotImplementedError(
                f"{method} must be implemented by derived class. You should use StrategyFactory to create"
                " DistributedStrategy."
            )


def _set(held: Any, config: Any, kind: type, what: str) -> Any:
    """The ``config`` if it has that type; or the current value with attributes from a dict."""
    if isinstance(config, kind):
        return config
    if held is None or not isinstance(config, dict):
        raise TypeError(f"{what} only accept input type: dict or {kind.__name__}")
    for key, value in config.items():
        if not hasattr(held, key):
            raise ValueError(f"{kind.__name__} doesn't have key: {key}")
        setattr(held, key, value)
    return held


class SyncStrategy(DistributedStrategy):
    """Servers wait for all workers at each step."""

    _mode = DistributedMode.SYNC
    _program = {
        "sync_mode": False,
        "runtime_split_send_recv": True,
        "half_async": True,
        "completely_not_async": True,
    }
    _barrier = True


class AsyncStrategy(DistributedStrategy):
    """Workers communicate alongside their steps."""

    _mode = DistributedMode.ASYNC
    _program = {"sync_mode": False, "runtime_split_send_recv": True}


class HalfAsyncStrategy(DistributedStrategy):
    """Workers communicate at the end of each step, without waiting for each other."""

    _mode = DistributedMode.HALF_ASYNC
    _program = {"sync_mode": False, "runtime_split_send_recv": True, "half_async": True}
    _barrier = True


class GeoStrategy(DistributedStrategy):
    """Workers optimise locally, and exchange changes every ``update_frequency`` steps."""

    _mode = DistributedMode.GEO
    _program = {"sync_mode": False, "runtime_split_send_recv": True, "geo_sgd_mode": True}

    def __init__(self, update_frequency: int = 100) -> None:
        super().__init__()
        self._program_config.geo_sgd_need_push_nums = update_frequency


class StrategyFactory:
    """Creates strategies."""

    @staticmethod
    def create_sync_strategy() -> SyncStrategy:
        """Servers wait for all workers at each step."""
        return SyncStrategy()

    @staticmethod
    def create_half_async_strategy() -> HalfAsyncStrategy:
        """Workers communicate at the end of each step."""
        return HalfAsyncStrategy()

    @staticmethod
    def create_async_strategy() -> AsyncStrategy:
        """Workers communicate alongside their steps."""
        return AsyncStrategy()

    @staticmethod
    def create_geo_strategy(update_frequency: int = 100) -> GeoStrategy:
        """Workers optimise locally."""
        return GeoStrategy(update_frequency)
