"""``python -m benchmarks.jax_worker MODEL STEPS``: time one hand-written JAX model in a process of its own."""

from __future__ import annotations

import sys

import jax

from benchmarks import jax_attention, jax_models, jax_sequences
from benchmarks.measure import RAGGED, measure, report


def main() -> None:
    """Measure and report."""
    model, steps = sys.argv[1], int(sys.argv[2])
    # As fluidjax: an accelerator's matrix units would round float32 operands to fewer bits.
    jax.config.update("jax_default_matmul_precision", "highest")
    alike = jax_models.MODELS | jax_attention.MODELS
    models = alike | jax_sequences.MODELS
    report(measure(models[model], steps, *((9, 0) if model in alike else RAGGED)))


if __name__ == "__main__":
    main()
