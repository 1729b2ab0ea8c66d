"""Recurrences: what ``layers.rnn`` hands on."""
