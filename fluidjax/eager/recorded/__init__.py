"""Ops that are recorded and not yet run: which, what of them is needed, and which numbers are known of them."""
