"""``--to jax``: turn a program into a readable Python module of plain JAX, starting from its jaxpr.

``texts`` holds pieces of Python; ``arithmetic`` and ``arrays`` one rule per primitive, ``control`` those for loops
and branches; ``functions`` writes primitives as statements, ``module`` turns ops into functions and shares equal ones;
``page`` is the file around them; ``convert`` traces, writes, runs and compares.
"""
