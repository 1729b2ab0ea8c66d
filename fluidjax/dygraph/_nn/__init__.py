"""The layer classes that ``dygraph.nn`` re-exports."""
