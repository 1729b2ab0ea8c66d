"""Programs for trainers and parameter servers."""

from fluidjax.base.unbuilt import unbuilt

DistributeTranspiler = unbuilt(__name__, "DistributeTranspiler")
DistributeTranspilerConfig = unbuilt(__name__, "DistributeTranspilerConfig")
DistributedMode = unbuilt(__name__, "DistributedMode")
ServerRuntimeConfig = unbuilt(__name__, "ServerRuntimeConfig")
VarBlock = unbuilt(__name__, "VarBlock")
same_or_split_var = unbuilt(__name__, "same_or_split_var")
slice_variable = unbuilt(__name__, "slice_variable")
