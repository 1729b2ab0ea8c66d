"""``--to c``: a program becomes one self-contained C99 file, by way of its jaxpr.

``trace`` makes a graph of primitives, ``fuse`` decides which values need memory, ``memory`` where it lies, ``emit``
writes a kernel for each statement and the calls in order, ``source`` the file around them. ``primitives`` has a
rule for each primitive, ``runtime`` what is C by hand.
"""

from fluidjax.export.c.source import Source, source_of
from fluidjax.export.c.trace import trace

__all__ = ["Source", "source_of", "trace"]
