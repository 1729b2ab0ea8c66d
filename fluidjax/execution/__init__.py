"""How a program runs: feeds in, one jitted step, fetches out, state back into the Scope."""
