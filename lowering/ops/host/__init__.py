"""Ops that run on the host: files, readers, printing, Python functions."""
