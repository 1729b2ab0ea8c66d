"""The Hadoop file system."""

from fluidjax.base.unbuilt import unbuilt

__all__ = ["HDFSClient"]

HDFSClient = unbuilt(__name__, "HDFSClient")
get_logger = unbuilt(__name__, "get_logger")
