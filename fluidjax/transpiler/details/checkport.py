"""Waiting for servers."""

from fluidjax.unbuilt import unbuilt

wait_server_ready = unbuilt(__name__, "wait_server_ready")
