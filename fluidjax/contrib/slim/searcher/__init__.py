"""Controllers: what proposes the next solution of a search."""

from fluidjax.contrib.slim.searcher import controller as controller
from fluidjax.contrib.slim.searcher.controller import EvolutionaryController, SAController

__all__ = ["EvolutionaryController", "SAController"]
