"""Readers of files, given what nobody would write. FUZZ_SECONDS says how long each target runs."""
