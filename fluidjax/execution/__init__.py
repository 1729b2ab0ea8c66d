"""How a program runs: feeds go in, one jitted step computes, fetches come out, and state returns to the Scope."""
