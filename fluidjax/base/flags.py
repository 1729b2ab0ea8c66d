"""Flags: settings by name, read from the environment (``FLAGS_check_nan_inf=1``) and set by ``set_flags``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from fluidjax.base import pool, repeating
from fluidjax.base.errors import EnforceNotMet

_REPEATING = "FLAGS_cudnn_deterministic"
# Flags that change what happens here.
_EFFECTIVE: dict[str, Any] = {
    "FLAGS_allow_host_ops": "",  # types of ops of loaded programs that may act on the host, as "send,recv"
    "FLAGS_call_stack_level": 1,  # 2: errors show the frames of fluidjax and JAX too
    "FLAGS_check_nan_inf": False,
    "FLAGS_check_values": True,  # labels and ids out of range, integer divisors of zero
    _REPEATING: False,  # sums of a GPU in the same order in each run: see ``base/repeating.py``
    "FLAGS_cpu_deterministic": False,
    "FLAGS_selected_gpus": "",
    # Beside the runs: compiling for other sizes of batches (not of seeded programs), loading what a script took before.
    "FLAGS_background_compilation": True,
    "FLAGS_paddle_num_threads": 1,
    "FLAGS_rpc_bind": "",  # the host that a server binds; '': that of its endpoint
    "FLAGS_rpc_deadline": 180000,  # milliseconds that a request to a parameter server may take
    "FLAGS_rpc_max_message_bytes": 1 << 31,
    "FLAGS_rpc_retry_times": 3,  # requests whose server went away
    "FLAGS_rpc_server_linger": 3000,  # milliseconds that a server stays for late readers
    "FLAGS_rpc_tls_ca": "",  # files: who signs certificates, and one's own with its key; '': no TLS
    "FLAGS_rpc_tls_cert": "",
    "FLAGS_rpc_tls_key": "",
    "FLAGS_rpc_token": "",  # what requests have to show
    "FLAGS_use_system_allocator": False,
}
# The pool of a GPU's memory: see ``base/pool.py``.
_POOL: dict[str, Any] = {
    "FLAGS_allocator_strategy": "auto_growth",
    "FLAGS_fraction_of_gpu_memory_to_use": 0.92,
    "FLAGS_initial_gpu_memory_in_mb": 0,
}
# Flags that steer Fluid's own memory, streams and kernels; XLA decides these itself. Kept so that scripts run.
_KEPT: dict[str, Any] = {
    "FLAGS_benchmark": False,
    "FLAGS_conv_workspace_size_limit": 512,
    "FLAGS_cudnn_batchnorm_spatial_persistent": False,
    "FLAGS_cudnn_exhaustive_search": False,
    "FLAGS_eager_delete_scope": True,
    "FLAGS_eager_delete_tensor_gb": 0.0,
    "FLAGS_enable_cublas_tensor_op_math": False,
    "FLAGS_enable_parallel_graph": False,
    "FLAGS_enable_rpc_profiler": False,
    "FLAGS_enable_unused_var_check": False,
    "FLAGS_fast_check_nan_inf": False,
    "FLAGS_fast_eager_deletion_mode": True,
    "FLAGS_fraction_of_cpu_memory_to_use": 1.0,
    "FLAGS_fraction_of_cuda_pinned_memory_to_use": 0.5,
    "FLAGS_free_idle_chunk": False,
    "FLAGS_free_when_no_cache_hit": False,
    "FLAGS_fuse_parameter_groups_size": 1,
    "FLAGS_fuse_parameter_memory_size": -1.0,
    "FLAGS_gpu_memory_limit_mb": 0,
    "FLAGS_init_allocated_mem": False,
    "FLAGS_initial_cpu_memory_in_mb": 500,
    "FLAGS_inner_op_parallelism": 0,
    "FLAGS_local_exe_sub_scope_limit": 256.0,
    "FLAGS_max_inplace_grad_add": 0,
    "FLAGS_memory_fraction_of_eager_deletion": 1.0,
    "FLAGS_multiple_of_cupti_buffer_size": 1,
    "FLAGS_reader_queue_speed_test_mode": False,
    "FLAGS_reallocate_gpu_memory_in_mb": 0,
    "FLAGS_sync_nccl_allreduce": True,
    "FLAGS_use_mkldnn": False,
    "FLAGS_use_pinned_memory": True,
    "FLAGS_tracer_profile_fname": "xxgperf",
    "FLAGS_print_sub_graph_dir": "",
    "FLAGS_pe_profile_fname": "",
    "FLAGS_dist_threadpool_size": 0,
}
# The executor's own.
_OWN: dict[str, Any] = {
    "FLAGS_compilation_cache_dir": "",
    "FLAGS_eager_blocks": True,  # whether eager ops that repeat are compiled as one block
    "FLAGS_eager_layers": True,  # whether calls of layers that only record ops are repeated without their Python
    "FLAGS_eager_numpy": True,  # whether small eager ops run on NumPy until compiling them pays
}

# Fluid's own code and the environment set them; scripts may not.
_PRIVATE = {
    "FLAGS_dist_threadpool_size",
    "FLAGS_free_idle_chunk",
    "FLAGS_free_when_no_cache_hit",
    "FLAGS_use_mkldnn",
}

_SPELLING = "Check the spelling; names start with FLAGS_."
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


class FlagValueError(ValueError, RuntimeError):
    """A flag's value has the wrong type; Fluid 1.8.5 raises RuntimeError."""


def _converted(name: str, value: Any, kind: type) -> Any:
    if kind is bool and isinstance(value, str):
        if value.lower() not in _TRUE + _FALSE:
            raise FlagValueError(f"flag {name} is a switch, and {value!r} is neither on nor off. Set it to 0 or 1.")
        return value.lower() in _TRUE
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise FlagValueError(f"flag {name} expects a {kind.__name__}, received {value!r}. Convert the value.") from None


def _from_environment() -> dict[str, Any]:
    flags = {**_KEPT, **_EFFECTIVE, **_POOL, **_OWN}
    for name, default in flags.items():
        if name in os.environ:
            flags[name] = _converted(name, os.environ[name], type(default))
    return flags


def _pass_on(named: Iterable[str]) -> None:
    """Tell jax what the flags say of a GPU, where any of those `named` is about it."""
    if _REPEATING in named:
        repeating.ask(FLAGS[_REPEATING])
    _ask_for_memory(named)


def _ask_for_memory(named: Iterable[str]) -> None:
    """Pass on what the flags say of a GPU's pool, if any of those `named` is about it.

    A chunk is taken unless the strategy is to grow from nothing, which is the default only while no size was named.
    """
    about = [name for name in _POOL if name in named]
    if not about:
        return
    _named.update(about)
    growing = "FLAGS_allocator_strategy" in _named and FLAGS["FLAGS_allocator_strategy"] == "auto_growth"
    fraction, size = FLAGS["FLAGS_fraction_of_gpu_memory_to_use"], FLAGS["FLAGS_initial_gpu_memory_in_mb"] << 20
    pool.ask(None if growing else lambda limit: size or int(limit * fraction), about[0])


FLAGS = _from_environment()
_named: set[str] = set()
_pass_on(os.environ)


def _known(name: str, where: str) -> str:
    if name not in FLAGS or name in _PRIVATE:
        raise ValueError(
            f"Flag {name} cannot {where} its value through this function. Known flags:"
            f" {', '.join(sorted(set(FLAGS) - _PRIVATE))}. {_SPELLING}"
        )
    return name


def set_flags(flags: Mapping[str, Any]) -> None:
    """Set flags by name. Raises TypeError if `flags` is not a dict, ValueError for unknown names or invalid values."""
    if not isinstance(flags, Mapping):
        raise TypeError(f"flags in set_flags should be a dict, got {flags!r}. Pass {{'FLAGS_check_nan_inf': 1}}.")
    for name, value in flags.items():
        _known(name, "set")
        FLAGS[name] = _converted(name, value, type(FLAGS[name]))
    _pass_on(flags)


def get_flags(flags: str | Iterable[str]) -> dict[str, Any]:
    """Get flags by name. Raises TypeError if `flags` is neither a name nor a list, ValueError for unknown names."""
    if isinstance(flags, str):
        flags = [flags]
    if not isinstance(flags, (list, tuple)):
        raise TypeError(f"Flags in get_flags should be a list, tuple or string, got {flags!r}. Pass names of flags.")
    return {name: FLAGS[_known(name, "get")] for name in flags}


class GlobalVarGetterSetterRegistry:
    """The flags as ``fluid.core.globals()`` has them, the private ones among them; assign to set one."""

    def keys(self) -> set[str]:
        """The names of all flags."""
        return set(FLAGS)

    def get(self, key: str, default: Any = None) -> Any:
        """A flag's value; `default` if there is no such flag."""
        return FLAGS.get(key, default)

    def is_public(self, name: str) -> bool:
        """Whether scripts may read and set a flag of that name."""
        return name in FLAGS and name not in _PRIVATE

    def __contains__(self, name: object) -> bool:
        return name in FLAGS

    def __getitem__(self, name: str) -> Any:
        """A flag's value. Raises EnforceNotMet if there is no such flag."""
        if name not in FLAGS:
            raise EnforceNotMet(f"Cannot find global variable {name}: expected one of keys(). {_SPELLING}")
        return FLAGS[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """Set a flag. Raises EnforceNotMet if scripts cannot set it, RuntimeError for a wrong value."""
        if not self.is_public(name):
            raise EnforceNotMet(f"Global variable {name} is not writable: expected one that is_public(). {_SPELLING}")
        set_flags({name: value})


def flag(name: str) -> Any:
    """The value of a flag, for internal use."""
    return FLAGS[name]
