"""Searching for a network's architecture, on one host or on several."""

from fluidjax.contrib.slim.nas import controller_server as controller_server
from fluidjax.contrib.slim.nas import light_nas_strategy as light_nas_strategy
from fluidjax.contrib.slim.nas import lock as lock
from fluidjax.contrib.slim.nas import search_agent as search_agent
from fluidjax.contrib.slim.nas import search_space as search_space
from fluidjax.contrib.slim.nas.controller_server import ControllerServer
from fluidjax.contrib.slim.nas.light_nas_strategy import LightNASStrategy
from fluidjax.contrib.slim.nas.search_agent import SearchAgent
from fluidjax.contrib.slim.nas.search_space import SearchSpace

__all__ = ["ControllerServer", "LightNASStrategy", "SearchAgent", "SearchSpace"]
