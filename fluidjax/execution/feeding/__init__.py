"""What users pass to a run: feeds checked and turned into values, and names to fetch."""
