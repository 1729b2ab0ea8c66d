"""Sums of arrays over the physical devices of one process, outside of any program."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from fluidjax.execution.steps.mesh import as_rows, rows_of
from lowering.engine.x64 import with_x64
from lowering.mesh import AXIS


class Sums:
    """Sums of arrays over devices, of which each gets all."""

    def __init__(self, devices: Sequence[jax.Device]):
        self._rows = rows_of(devices)
        rows, mesh = self._rows.spec, self._rows.mesh
        over = jax.shard_map(_summed, mesh=mesh, in_specs=(rows,), out_specs=rows, check_vma=False)
        self._jitted = jax.jit(over)

    def __call__(self, parts: Sequence[Sequence[jax.Array]]) -> list[list[jax.Array]]:
        """For each list of parts, one on each device, the sum on each device."""
        if not parts:
            return []
        # Steps of one host's devices that overtake each other would wait for each other's threads.
        jax.block_until_ready(parts)
        totals = jax.block_until_ready(with_x64(self._jitted, [self._joined(of) for of in parts]))
        return [self._apart(total, of[0].shape) for total, of in zip(totals, parts, strict=True)]

    def _joined(self, parts: Sequence[jax.Array]) -> jax.Array:
        return as_rows([part if part.ndim else part.reshape(1) for part in parts], self._rows)

    def _apart(self, total: jax.Array, shape: tuple[int, ...]) -> list[jax.Array]:
        found = [total.addressable_data(i) for i in range(self._rows.num_devices)]
        return found if shape else [one.reshape(()) for one in found]


def _summed(parts: list[jax.Array]) -> list[jax.Array]:
    return [jax.lax.psum(part, AXIS) for part in parts]
