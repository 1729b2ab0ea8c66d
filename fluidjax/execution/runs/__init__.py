"""The ways in which a program runs, and what is tried when an attempt fails."""
