"""Tools for training over many days."""

from fluidjax.base.unbuilt import unbuilt

__all__ = ["FleetUtil"]

FleetUtil = unbuilt(__name__, "FleetUtil")
