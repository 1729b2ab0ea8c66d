"""Programs for trainers that send their parameters now and then."""

from fluidjax.base.unbuilt import unbuilt

GeoSgdTranspiler = unbuilt(__name__, "GeoSgdTranspiler")
