"""Passes over inference programs, and graphs that scripts change programs by.

Each pass makes ops fewer or cheaper, and leaves what is fetched as it is: ``rewriter`` knows who writes and reads what;
``folding``, ``fusion`` and ``cleaning`` have the passes, ``pipeline`` runs them in order. ``graph`` makes nodes of a
program and ``applied`` a program of nodes, so that passes run over graphs too; ``ir_graph`` is what scripts hold of it.
"""

from fluidjax.ir import applied as applied
from fluidjax.ir.pipeline import PASSES, Optimized, optimize

__all__ = ["PASSES", "Optimized", "optimize"]
