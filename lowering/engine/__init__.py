"""From a program's blocks to values: planning, calling rules, shape inference, random bits."""
