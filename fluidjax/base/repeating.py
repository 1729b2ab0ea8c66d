"""FLAGS_cudnn_deterministic: sums of a GPU in the same order in each run, passed on to XLA before it starts.

Where threads of a GPU add to one element (gradients of tables, scatters) they come in any order, and the last bits
differ from run to run. XLA then sorts first, which takes time, as Fluid's flag does.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import MutableMapping

import jax
from jax._src.xla_bridge import backends_are_initialized

from fluidjax.base.errors import explain
from fluidjax.base.pool import may_accelerate

_OPTION = "--xla_gpu_deterministic_ops"
_ON = f"{_OPTION}=true"


def ask(wanted: bool, environment: MutableMapping[str, str] = os.environ) -> None:
    """Have XLA's kernels for GPUs repeat their bits, or not; what XLA_FLAGS says itself wins.

    Once jax has started, nothing changes: then it is warned about where it is `wanted` and there is a GPU.
    """
    options = environment.get("XLA_FLAGS", "").split()
    if not may_accelerate() or any(o.startswith(_OPTION) and o != _ON for o in options):
        return
    if backends_are_initialized():
        if wanted and _ON not in options and any(device.platform == "gpu" for device in jax.local_devices()):
            warnings.warn(_late(), stacklevel=4)
        return
    others = [option for option in options if option != _ON]
    if options or wanted:
        environment["XLA_FLAGS"] = " ".join([*others, _ON] if wanted else others)


def _late() -> str:
    return explain(
        "FLAGS_cudnn_deterministic comes too late: jax has started, and a GPU's sums keep coming in any order",
        "the flag before the first place, executor or guard",
        "the flag after it",
        "set FLAGS_cudnn_deterministic=1 in the environment, or call set_flags at the beginning of the script",
    )
