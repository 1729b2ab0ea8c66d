"""Which parameter server holds which parameter."""

from fluidjax.base.unbuilt import unbuilt

PSDispatcher = unbuilt(__name__, "PSDispatcher")
HashName = unbuilt(__name__, "HashName")
RoundRobin = unbuilt(__name__, "RoundRobin")
