"""Settings that ``fluid.core`` takes for its memory, its collectives, its threads: kept as flags."""

from __future__ import annotations

from fluidjax.base.flags import FLAGS


def _set_eager_deletion_mode(threshold: float, fraction: float, fast_mode: bool) -> None:
    """Set when unused variables are freed: stored as flags only; XLA frees buffers after their last use."""
    FLAGS["FLAGS_eager_delete_tensor_gb"] = float(threshold)
    FLAGS["FLAGS_memory_fraction_of_eager_deletion"] = float(fraction)
    FLAGS["FLAGS_fast_eager_deletion_mode"] = bool(fast_mode)


def _set_fuse_parameter_group_size(size: int) -> None:
    """Set the number of gradients per fused all-reduce: stored as a flag only; XLA combines collectives itself."""
    FLAGS["FLAGS_fuse_parameter_groups_size"] = int(size)


def _set_fuse_parameter_memory_size(size: float) -> None:
    """Set the size in MB of a fused all-reduce: stored as a flag only; XLA combines collectives itself."""
    FLAGS["FLAGS_fuse_parameter_memory_size"] = float(size)


def set_num_threads(num_threads: int) -> None:
    """Set the number of threads ops may use: stored as a flag only; XLA has its own pool."""
    FLAGS["FLAGS_paddle_num_threads"] = int(num_threads)


def init_gflags(args: list[str]) -> bool:
    """Process command-line flags; a no-op, since the environment is read on import."""
    return True


def init_glog(program: str) -> None:
    """Initialise logging; a no-op, since Python's ``logging`` needs none."""


def init_devices(init_p2p: bool = False) -> None:
    """Initialise devices; a no-op, since jax discovers them on first use."""
