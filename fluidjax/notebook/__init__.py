"""Notebook representations and warnings. The classes concerned do not depend on this package."""

from fluidjax.notebook.cells import watch_cells
from fluidjax.notebook.eager import install_eager_reprs
from fluidjax.notebook.html import install_reprs
from fluidjax.notebook.tracebacks import watch_errors

__all__ = ["install_eager_reprs", "install_reprs", "watch_cells", "watch_errors"]
