"""Between a Scope and a run: values gathered, converted, and written back at one place."""
