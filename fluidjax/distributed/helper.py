"""What processes of pslib's servers ask MPI and file systems for."""

from fluidjax.base.unbuilt import unbuilt

FileSystem = unbuilt(__name__, "FileSystem")
MPIHelper = unbuilt(__name__, "MPIHelper")
