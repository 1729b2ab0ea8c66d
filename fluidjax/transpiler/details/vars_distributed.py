"""Which parts of a variable are on which server."""

from fluidjax.base.unbuilt import unbuilt

VarStruct = unbuilt(__name__, "VarStruct")
VarDistributed = unbuilt(__name__, "VarDistributed")
VarsDistributed = unbuilt(__name__, "VarsDistributed")
