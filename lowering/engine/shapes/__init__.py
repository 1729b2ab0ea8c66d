"""What is known of a program before anything runs: shapes, types, and whether it is valid."""
