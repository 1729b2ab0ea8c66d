"""``paddle.utils``: curves of a training run."""

from fluidjax.paddle.utils.plot import Ploter

__all__ = ["Ploter"]
