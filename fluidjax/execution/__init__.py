"""How a program runs: feeds go in, one jitted step computes, fetches come out, and state returns to the Scope.

From the ground up: ``rooms`` (how much room batches of changing sizes get), ``executables`` (what XLA compiled, in
this process and on disk), ``scopes`` (values of a Scope, out and in), ``feeding`` (what users pass), ``steps`` (a
program as one jitted step), ``lasting`` (what stays on the device between runs), ``runs`` (the ways to run, from
``prepared``, the entry to all of them), and ``devices`` (several of them). A room imports those before it only.
"""
