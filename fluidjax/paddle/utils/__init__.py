"""``paddle.utils``: training curves; pictures (``image_util``)."""

from fluidjax.paddle.utils.plot import Ploter

__all__ = ["Ploter"]
