"""Waiting for servers."""

from fluidjax.base.unbuilt import unbuilt

wait_server_ready = unbuilt(__name__, "wait_server_ready")
