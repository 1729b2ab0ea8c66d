"""A stub replaced by fluidjax: after ``import paddle``, the name refers to what it is under ``fluidjax run``."""

import os
import sys

del sys.modules[__name__]
try:
    from fluidjax import legacy
    from fluidjax.command import aliases
except ModuleNotFoundError as error:
    if error.name != "fluidjax":
        raise
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
    from fluidjax import legacy
    from fluidjax.command import aliases

legacy.install()
aliases.serve()
