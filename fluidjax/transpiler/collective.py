"""Programs for workers that exchange gradients among themselves."""

from fluidjax.base.unbuilt import unbuilt

Collective = unbuilt(__name__, "Collective")
GradAllReduce = unbuilt(__name__, "GradAllReduce")
LocalSGD = unbuilt(__name__, "LocalSGD")
SingleProcessMultiThread = unbuilt(__name__, "SingleProcessMultiThread")
