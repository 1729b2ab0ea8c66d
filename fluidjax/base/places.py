"""Places: the devices that programs run on, mapped to jax devices.

``CPUPlace()`` is jax's CPU, ``CUDAPlace(i)`` the i-th accelerator, whether GPU or TPU core.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import jax

from fluidjax.base.dispatch import compute_in_the_calling_thread
from fluidjax.base.errors import explain
from fluidjax.base.pool import may_accelerate, reserve
from fluidjax.base.signals import local_devices


@functools.cache
def _accelerators() -> tuple:
    if not may_accelerate():
        return ()
    compute_in_the_calling_thread()  # scripts ask for accelerators before anything else, which starts XLA
    return tuple(device for device in local_devices() if device.platform != "cpu")


def default_place() -> Place:
    """The first accelerator, or else the CPU."""
    return CUDAPlace(0) if is_compiled_with_cuda() else CPUPlace()


class Place:
    """A device of any kind, chosen by ``set_place``."""

    def __init__(self) -> None:
        self._place: Place | None = None

    def set_place(self, place: Place) -> None:
        """Set this place to the same device as `place`."""
        self._place = place._place if type(place) is Place else place

    def _kind(self) -> type:
        return type(self._place) if type(self) is Place else type(self)

    def is_cpu_place(self) -> bool:
        """Whether it is a CPU."""
        return self._kind() is CPUPlace

    def is_gpu_place(self) -> bool:
        """Whether it is an accelerator."""
        return self._kind() is CUDAPlace

    def is_cuda_pinned_place(self) -> bool:
        """Whether it is pinned host memory."""
        return self._kind() is CUDAPinnedPlace

    def gpu_device_id(self) -> int:
        """The index of the accelerator."""
        place = self._place if type(self) is Place else self
        if not isinstance(place, CUDAPlace):
            raise ValueError(f"gpu_device_id: {place} is no accelerator. Ask is_gpu_place() first.")
        return place.device_id

    def _equals(self, other: Place) -> bool:
        return self == other

    def _type(self) -> int:
        return {CPUPlace: 1, CUDAPlace: 0, CUDAPinnedPlace: 2}.get(self._kind(), -1)

    def _jax_device(self) -> jax.Device:
        place = self._place if type(self) is Place else self
        if place is None:
            raise ValueError("This Place names no device yet. Call set_place(fluid.CPUPlace()) or the like.")
        return place._jax_device()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return "Place(undefined)" if self._place is None else repr(self._place)


class CPUPlace(Place):
    """The CPU.

    Examples:
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> exe.place
        CPUPlace
    """

    def _jax_device(self) -> jax.Device:
        return local_devices("cpu")[0]

    def __repr__(self) -> str:
        return "CPUPlace"


class CUDAPlace(Place):
    """The accelerator at index `device_id` among JAX's local devices other than CPUs.

    The name is Fluid's; any accelerator supported by JAX is accepted. Raises RuntimeError if there is no such device.

    Examples:
        >>> place = fluid.CUDAPlace(0) if fluid.is_compiled_with_cuda() else fluid.CPUPlace()
        >>> fluid.Executor(place).place == place
        True
    """

    def __init__(self, device_id: int = 0) -> None:
        super().__init__()
        if isinstance(device_id, str):
            raise TypeError(f"CUDAPlace takes the number of a device: expected an int, received {device_id!r}.")
        count = len(_accelerators())
        if not 0 <= int(device_id) < count:
            raise RuntimeError(
                f"CUDAPlace({device_id}): no such accelerator. jax sees {count} of them, and the default "
                f"platform here is {jax.default_backend()!r}. Use fluid.CPUPlace(), or install jax with "
                "support for your accelerator (for instance `pip install jax[cuda13]`)."
            )
        self.device_id = int(device_id)

    def get_device_id(self) -> int:
        """The index passed to the constructor."""
        return self.device_id

    def _jax_device(self) -> jax.Device:
        device = _accelerators()[self.device_id]
        reserve(device)
        return device

    def __repr__(self) -> str:
        return f"CUDAPlace({self.device_id})"


class CUDAPinnedPlace(Place):
    """Host memory for fast copies to an accelerator; here the same as ordinary host memory."""

    def __init__(self) -> None:
        super().__init__()
        if not _accelerators():
            raise RuntimeError(
                "CUDAPinnedPlace(): pinned memory serves an accelerator, and jax sees none. Use fluid.CPUPlace()."
            )

    def _jax_device(self) -> jax.Device:
        return local_devices("cpu")[0]

    def __repr__(self) -> str:
        return "CUDAPinnedPlace"


def jax_device(place: Place) -> jax.Device:
    """The jax device of a place."""
    return place._jax_device()


def physical_devices(places: Sequence[Place]) -> list[jax.Device]:
    """One jax device per place; empty if there are not enough."""
    devices = [place._jax_device() for place in places]
    if len(places) > 1 and len(set(devices)) == 1 and places[0].is_cpu_place():
        devices = local_devices("cpu")[: len(places)]
    return devices if len(set(devices)) == len(places) else []


def is_compiled_with_cuda() -> bool:
    """Whether there is an accelerator, so that ``CUDAPlace(0)`` works.

    Scripts use it to choose a place, so it reports what is available on this machine, not how JAX was built.

    Examples:
        >>> fluid.is_compiled_with_cuda() == (fluid.core.get_cuda_device_count() > 0)
        True
    """
    return bool(_accelerators())


def get_cuda_device_count() -> int:
    """The number of accelerators.

    Examples:
        >>> places = [fluid.CUDAPlace(i) for i in range(fluid.core.get_cuda_device_count())]
        >>> len(places) == fluid.core.get_cuda_device_count()
        True
    """
    return len(_accelerators())


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """A list of `device_count` CPU places; by default CPU_NUM (an environment variable) of them, or one.

    Examples:
        >>> len(fluid.cpu_places(2))
        2
    """
    count = int(os.environ.get("CPU_NUM", 1)) if device_count is None else device_count
    return [CPUPlace()] * count


def cuda_places(device_ids: Sequence[int] | None = None) -> list[CUDAPlace]:
    """One place for each of `device_ids`; by default those in FLAGS_selected_gpus, or all accelerators.

    Raises RuntimeError if there is no accelerator.

    Examples:
        >>> places = fluid.cuda_places() if fluid.is_compiled_with_cuda() else fluid.cpu_places(1)
        >>> len(places) > 0
        True
    """
    if not _accelerators():
        raise RuntimeError("cuda_places: jax sees no accelerator here. Use fluid.cpu_places().")
    if device_ids is None:
        selected = os.environ.get("FLAGS_selected_gpus", "")
        device_ids = [int(i) for i in selected.split(",")] if selected else range(len(_accelerators()))
    return [CUDAPlace(i) for i in device_ids]


def cuda_pinned_places(device_count: int | None = None) -> list[CUDAPinnedPlace]:
    """A list of `device_count` pinned places; by default CPU_NUM of them, or one."""
    count = int(os.environ.get("CPU_NUM", 1)) if device_count is None else device_count
    return [CUDAPinnedPlace()] * count


def checked_place(place: Any) -> Place:
    """The place of an executor, the CPU if None. Raises TypeError for what is no place."""
    if place is None:
        return CPUPlace()
    if not isinstance(place, Place):
        raise TypeError(
            explain(
                f"Executor: {place!r} is no place",
                "fluid.CPUPlace() or fluid.CUDAPlace(0)",
                f"a {type(place).__name__}",
                "write fluid.Executor(fluid.CPUPlace())",
            )
        )
    return place
