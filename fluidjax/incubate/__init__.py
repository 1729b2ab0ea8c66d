# ruff: noqa: F401  (names are gathered here)
"""``fluid.incubate``: data generators and fleet."""

from fluidjax.incubate import data_generator, fleet
