# ruff: noqa: F401  (names are gathered here)
"""``fluid.incubate``: generators of training data, and fleet."""

from fluidjax.incubate import data_generator, fleet
