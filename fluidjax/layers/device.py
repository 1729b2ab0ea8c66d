"""``fluid.layers.device``: the devices of this machine, as a variable."""

from __future__ import annotations

import warnings

from fluidjax import unique_name
from fluidjax.base.enums import VarType
from fluidjax.base.errors import EnforceNotMet
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper

__all__: list[str] = []


def get_places(device_count: int | None = None, device_type: str | None = None) -> Variable:
    """The first devices of a kind. Deprecated, as in Fluid: no op reads the result since ``ParallelDo`` was removed.

    Args:
        device_count: number of devices; None or 0 for all.
        device_type: "CPU", "CUDA", or "AUTO" (None), which prefers accelerators if there are any.
            Other values raise EnforceNotMet.

    Returns:
        A Variable of type PLACE_LIST.
    """
    if device_type not in (None, "AUTO", "CUDA", "CPU"):
        raise EnforceNotMet(
            f"get_places: Value {device_type} is not in enum container: expected AUTO, CUDA or CPU. Give one of them"
        )
    warnings.warn(
        'API "get_places" is deprecated since 0.15.0. Please use "ParallelExecutor" instead.',
        DeprecationWarning,
        stacklevel=2,
    )
    helper = LayerHelper("get_places")
    places = helper.create_variable(
        type=VarType.PLACE_LIST, name=unique_name.generate_with_ignorable_key(f"{helper.name}.out")
    )
    attrs = {"device_count": device_count, "device_type": device_type}
    helper.append_op(
        type="get_places", outputs={"Out": [places]}, attrs={k: v for k, v in attrs.items() if v is not None}
    )
    return places
