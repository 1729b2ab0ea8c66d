"""The primitives that call a function, whose jaxpr is under one of the names in CALLED."""

CALLS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint")
CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
