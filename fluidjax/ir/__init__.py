"""Passes over inference programs: each makes ops fewer or cheaper, and leaves what is fetched as it is.

``rewriter`` knows who writes and reads what; ``identities``, ``folding``, ``fusion`` and ``cleaning`` have the passes,
``pipeline`` runs them in order.
"""

from fluidjax.ir.pipeline import PASSES, Optimized, optimize

__all__ = ["PASSES", "Optimized", "optimize"]
