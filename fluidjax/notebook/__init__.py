"""What notebooks show, and what they are warned of. The classes concerned know nothing of it."""

from fluidjax.notebook.cells import watch_cells
from fluidjax.notebook.eager import install_eager_reprs
from fluidjax.notebook.html import install_reprs

__all__ = ["install_eager_reprs", "install_reprs", "watch_cells"]
