"""Pictures: ``paddle.incubate.hapi.vision``."""

from fluidjax.paddle.incubate.hapi.vision import transforms
from fluidjax.paddle.incubate.hapi.vision.transforms import *  # noqa: F403

__all__ = list(transforms.__all__)
