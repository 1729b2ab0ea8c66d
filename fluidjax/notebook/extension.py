"""``%load_ext fluidjax``: in this notebook ``import paddle`` gives fluidjax, as under ``fluidjax run``."""

from __future__ import annotations

import os
from typing import Any

from fluidjax import legacy
from fluidjax.command import aliases, cache


def load_ipython_extension(shell: Any) -> None:
    """What IPython calls. PaddleImportedError when a real ``paddle`` was imported before."""
    legacy.install()
    aliases.serve()
    os.environ.update(aliases.child_environment())
    cache.enable()
