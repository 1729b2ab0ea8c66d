"""``%load_ext fluidjax``: makes ``import paddle`` import fluidjax in this notebook, as under ``fluidjax run``."""

from __future__ import annotations

import os
from typing import Any

from fluidjax import legacy
from fluidjax.command import aliases, cache


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython. Raises PaddleImportedError if a real ``paddle`` was imported before."""
    legacy.install()
    aliases.serve()
    os.environ.update(aliases.child_environment())
    cache.enable()
