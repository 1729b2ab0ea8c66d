"""``python -m fluidjax`` runs the ``fluidjax`` command."""

import sys

from fluidjax.command.cli import main

sys.exit(main())
