"""Servers and workers of the pslib library."""

from fluidjax.base.unbuilt import unbuilt

Server = unbuilt(__name__, "Server")
Worker = unbuilt(__name__, "Worker")
DownpourServer = unbuilt(__name__, "DownpourServer")
DownpourWorker = unbuilt(__name__, "DownpourWorker")
