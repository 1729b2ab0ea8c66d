"""Assignment of parameters to parameter servers."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any


class PSDispatcher:
    """Base class for assigning variables to servers; subclasses define ``dispatch``."""

    def __init__(self, pserver_endpoints: Sequence[str]) -> None:
        self._eps = pserver_endpoints
        self._step = 0

    @property
    def eps(self) -> Sequence[str]:
        """The servers."""
        return self._eps

    def reset(self) -> None:
        """Restart with the first server."""
        self._step = 0

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """One server per variable."""
        raise NotImplementedError(
            f"{type(self).__name__} has no dispatch(varlist): expected a list of one endpoint per variable. Define it."
        )


class HashName(PSDispatcher):
    """Assigns by a hash (CRC-32) of the names, identically in every process."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """The server for each variable, by its name."""
        return [self._eps[zlib.crc32(var.name.encode()) % len(self._eps)] for var in varlist]


class RoundRobin(PSDispatcher):
    """Assigns in turn, continuing where the last call ended."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """The next servers in turn."""
        first = self._step
        self._step = (first + len(varlist)) % len(self._eps)
        return [self._eps[(first + k) % len(self._eps)] for k in range(len(varlist))]
