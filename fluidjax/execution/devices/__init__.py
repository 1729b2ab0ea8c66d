"""Runs over several devices, processes or stages."""
