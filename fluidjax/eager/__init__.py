"""Eager mode: variables with values, the tracer that runs ops on them, and the tape used to compute gradients.

An op's way: ``tracer`` finds its kernel (``forms``, ``kernels``) and records it (``recorded``); when somebody looks,
what was recorded runs, op by op at first (``first``), as a compiled block once it recurs (``sequences``). ``backward``
holds the tape, ``variables`` the variable itself, ``repeated`` what comes again and needs no Python of its own, and
``whole`` training steps that are known from end to end; ``functions`` are ops that are Python or static programs.
"""
