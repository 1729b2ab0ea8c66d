# ruff: noqa: F401  (the names of fluid.layers.rnn are gathered here)
"""The names of ``fluid.layers.rnn``."""

from fluidjax.base.unknown import unknown_name
from fluidjax.layers._rnn.beams import beam_search, beam_search_decode
from fluidjax.layers._rnn.cells import GRUCell, LSTMCell, RNNCell, rnn
from fluidjax.layers._rnn.decoders import BeamSearchDecoder, Decoder, dynamic_decode
from fluidjax.layers._rnn.gru import dynamic_gru, gru_unit
from fluidjax.layers._rnn.helpers import (
    BasicDecoder,
    DecodeHelper,
    GreedyEmbeddingHelper,
    SampleEmbeddingHelper,
    TrainingHelper,
)
from fluidjax.layers._rnn.lstm import dynamic_lstm, dynamic_lstmp, lstm, lstm_unit

__all__ = [
    "BasicDecoder",
    "BeamSearchDecoder",
    "DecodeHelper",
    "Decoder",
    "GRUCell",
    "GreedyEmbeddingHelper",
    "LSTMCell",
    "RNNCell",
    "SampleEmbeddingHelper",
    "TrainingHelper",
    "beam_search",
    "beam_search_decode",
    "dynamic_decode",
    "dynamic_gru",
    "dynamic_lstm",
    "dynamic_lstmp",
    "gru_unit",
    "lstm",
    "lstm_unit",
    "rnn",
]

__getattr__ = unknown_name(__name__)
