"""Losses: what ``layers.loss`` and ``layers.nn`` hand on."""
