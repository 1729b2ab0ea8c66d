"""The roles of processes that MPI starts for pslib's servers."""

from fluidjax.base.unbuilt import unbuilt

PaddlePSInstance = unbuilt(__name__, "PaddlePSInstance")
