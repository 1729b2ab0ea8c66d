"""The first runs of an eager op: on NumPy, from the jaxpr of its rule, as long as compiling it would not pay."""
