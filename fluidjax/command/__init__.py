"""The command line, and making fluidjax importable as paddle."""
