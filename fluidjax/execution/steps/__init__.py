"""A program, or a stretch of it, as one jitted step: traced, compiled for each form, and called."""
