"""Programs for trainers that send their parameters now and then."""

from fluidjax.unbuilt import unbuilt

GeoSgdTranspiler = unbuilt(__name__, "GeoSgdTranspiler")
