"""``python -m fluidjax`` is the command ``fluidjax``."""

import sys

from fluidjax.command.cli import main

sys.exit(main())
