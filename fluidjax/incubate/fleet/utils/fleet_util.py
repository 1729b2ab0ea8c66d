"""Tools for training over many days."""

from fluidjax.base.unbuilt import unbuilt

FleetUtil = unbuilt(__name__, "FleetUtil")
