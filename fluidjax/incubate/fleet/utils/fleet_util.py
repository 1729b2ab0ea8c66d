"""Tools for training over many days."""

from fluidjax.unbuilt import unbuilt

FleetUtil = unbuilt(__name__, "FleetUtil")
