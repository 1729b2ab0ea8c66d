"""``--to jax``: a program becomes a readable Python module of plain JAX, by way of its jaxpr.

``texts`` are pieces of Python; ``arithmetic`` and ``arrays`` have a rule for each primitive, ``control`` those of loops
and branches; ``functions`` writes primitives as statements, ``module`` makes functions of ops, and one of equal ones;
``page`` is the file around them, ``convert`` traces, writes, runs and compares.
"""
