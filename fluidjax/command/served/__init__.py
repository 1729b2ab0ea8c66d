"""A folder for PYTHONPATH: Python processes that a script starts find ``paddle`` in it, as the script does."""
