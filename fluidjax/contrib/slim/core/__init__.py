"""Compression of a network epoch by epoch: who runs it, how it is configured, and what strategies are."""

from fluidjax.contrib.slim.core import compressor as compressor
from fluidjax.contrib.slim.core import config as config
from fluidjax.contrib.slim.core import strategy as strategy
from fluidjax.contrib.slim.core.compressor import Compressor, Context
from fluidjax.contrib.slim.core.config import ConfigFactory
from fluidjax.contrib.slim.core.strategy import Strategy

__all__ = ["Compressor", "ConfigFactory", "Context", "Strategy"]
