"""Common actions of the workers of a fleet."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from fluidjax.base.errors import explain

_logger = logging.getLogger("fluidjax.incubate.fleet.utils.fleet_util")


class Workers:
    """The workers of a fleet, as seen by one of them.

    Args:
        fleet: an initialised fleet.
    """

    def __init__(self, fleet: Any) -> None:
        self._fleet = fleet

    def rank0_print(self, s: Any) -> None:
        """Print on worker 0 only."""
        if self._fleet.worker_index() == 0:
            print(s, flush=True)

    def rank0_info(self, s: Any) -> None:
        """Log on worker 0 only."""
        if self._fleet.worker_index() == 0:
            _logger.info(s)

    def rank0_error(self, s: Any) -> None:
        """Log as an error, on worker 0 only."""
        if self._fleet.worker_index() == 0:
            _logger.error(s)

    def _total(self, value: Any) -> Any:
        """The sum of an array over all workers, using the role maker if there are several."""
        if self._fleet.worker_num() == 1:
            return value
        total = np.zeros_like(value.reshape(-1))
        self._between_workers("_all_reduce")(value.reshape(-1), total)
        return total.reshape(value.shape)

    def _between_workers(self, method: str) -> Any:
        role_maker = self._fleet._role_maker
        if not hasattr(role_maker, method):
            raise RuntimeError(
                explain(
                    f"FleetUtil: a {type(role_maker).__name__} does not connect its workers",
                    f"a role maker with {method}, or one worker",
                    f"{self._fleet.worker_num()} workers",
                    f"give the role maker {method}(input, output), or fetch and add the values in the script",
                )
            )
        return getattr(role_maker, method)

    def _wait(self) -> None:
        if self._fleet.worker_num() > 1:
            self._between_workers("_barrier_worker")()
