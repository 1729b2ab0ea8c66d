"""The first runs of an eager op: on NumPy, from the jaxpr of its rule, until compiling it pays off."""
