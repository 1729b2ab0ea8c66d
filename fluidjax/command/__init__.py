"""The command line, and serving fluidjax under the name paddle."""
