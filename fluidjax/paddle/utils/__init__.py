"""``paddle.utils``: training curves."""

from fluidjax.paddle.utils.plot import Ploter

__all__ = ["Ploter"]
