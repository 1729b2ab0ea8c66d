"""Passes over inference programs, and the graphs through which scripts modify programs.

Each pass reduces the number or cost of ops without changing what is fetched: ``rewriter`` tracks who writes and reads
what; ``folding``, ``fusion`` and ``cleaning`` contain the passes, ``pipeline`` runs them in order. ``graph`` converts a
program to nodes and ``applied`` converts back, so that passes run on graphs too; ``ir_graph`` is the scripts' view.
"""

from fluidjax.ir import applied as applied
from fluidjax.ir.pipeline import PASSES, Optimized, optimize

__all__ = ["PASSES", "Optimized", "optimize"]
