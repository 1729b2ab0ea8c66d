"""Decoders that share one definition of a step between training and beam search."""

from fluidjax.contrib.decoder import beam_search_decoder
from fluidjax.contrib.decoder.beam_search_decoder import *  # noqa: F403

__all__ = list(beam_search_decoder.__all__)
