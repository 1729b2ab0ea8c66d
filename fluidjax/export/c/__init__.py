"""``--to c``: compile a program into one self-contained C99 file, starting from its jaxpr.

``trace`` builds a graph of primitives, ``fuse`` decides what needs memory, ``memory`` assigns addresses, ``emit``
writes a kernel for each statement and the calls in order, ``ports`` the tables of inputs and outputs, and ``source``
the file around them. ``primitives`` holds one rule per primitive, ``runtime`` the hand-written C.
"""

from fluidjax.export.c.source import Source, source_of
from fluidjax.export.c.trace import trace

__all__ = ["Source", "source_of", "trace"]
