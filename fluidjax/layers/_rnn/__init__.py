"""Recurrent layers: what ``layers.rnn`` re-exports."""
