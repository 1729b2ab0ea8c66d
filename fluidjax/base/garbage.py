"""When Python looks for garbage: not while much is made of which nothing is garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Within this context no garbage is collected, for work of milliseconds whose results all stay.

    A backward pass makes enough objects that Python would look through all there are, the 120,000 that the imports
    leave among them, which takes as long as the pass.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
