"""jax's settings of one thread, for others that work for it."""

from __future__ import annotations

from collections.abc import Callable

from jax._src.config import config_ext, config_states


def settings_of_thread() -> Callable[[], None]:
    """A function that gives the thread that calls it the settings which this thread has now.

    Those are what jax keeps for each thread: 64-bit types, the default device, the precision of products, and whatever
    else a ``with`` of jax has chosen. It is meant for a thread's beginning: nothing undoes it.
    """
    found = ((state, state.get_local()) for state in config_states.values())
    chosen = [(state, value) for state, value in found if value is not config_ext.unset]

    def take_over() -> None:
        for state, value in chosen:
            state(value).__enter__()

    return take_over
