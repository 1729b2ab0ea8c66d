"""Where jax computes on the machine that runs the tests."""

from __future__ import annotations

import jax

# What jax.export calls the platform: a file for another one cannot be called here.
PLATFORM = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
