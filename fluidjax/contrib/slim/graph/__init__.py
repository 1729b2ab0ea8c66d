"""Programs with named inputs and outputs, as strategies of compression see them."""

from fluidjax.contrib.slim.graph import executor as executor
from fluidjax.contrib.slim.graph import graph_wrapper as graph_wrapper
from fluidjax.contrib.slim.graph.executor import SlimGraphExecutor
from fluidjax.contrib.slim.graph.graph_wrapper import GraphWrapper, OpWrapper, VarWrapper

__all__ = ["GraphWrapper", "OpWrapper", "SlimGraphExecutor", "VarWrapper"]
