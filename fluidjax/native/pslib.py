"""pslib's client, of builds without pslib."""

from __future__ import annotations

from fluidjax.base.unbuilt import UnbuiltObject


class Fleet(UnbuiltObject):
    """``core.Fleet``: settings, and what there is to ask without servers; the rest raises NotBuiltError when used.

    Paddle's wheels are built without pslib as well: their methods do nothing.

    Examples:
        >>> fleet = fluid.core.Fleet()
        >>> fleet.set_client2client_config(1, 1, 1)
        >>> fleet.get_cache_threshold(0)
        0.0
    """

    def __init__(self) -> None:
        super().__init__("fluidjax.core", "Fleet")

    def set_client2client_config(self, request_timeout_ms: int, connect_timeout_ms: int, max_retry: int) -> None:
        """How trainers connect to each other; they do not without pslib."""

    def set_pull_local_thread_num(self, thread_num: int) -> None:
        """The number of threads that pull parameters; there are none without pslib."""

    def get_cache_threshold(self, table_id: int) -> float:
        """How often a row is shown before it is cached: 0 for a table that no server has."""
        return 0.0
