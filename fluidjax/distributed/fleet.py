"""A fleet of pslib's servers before ``fluid.incubate``."""

from fluidjax.base.unbuilt import unbuilt

__all__ = ["Fleet"]

Fleet = unbuilt(__name__, "Fleet")
