"""The names of ``fluid.contrib.decoder.beam_search_decoder``."""

from fluidjax.contrib.decoder.searching import BeamSearchDecoder
from fluidjax.contrib.decoder.state import InitState, StateCell
from fluidjax.contrib.decoder.training import TrainingDecoder

__all__ = ["InitState", "StateCell", "TrainingDecoder", "BeamSearchDecoder"]
