"""A directory for PYTHONPATH in which child Python processes find ``paddle``, as the script does."""
