"""``fluid.dygraph_grad_clip`` of Fluid 1.6 and 1.7: clips that ``minimize`` takes in eager mode."""

from __future__ import annotations

from fluidjax.clip import GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue

__all__ = ["GradClipByValue", "GradClipByNorm", "GradClipByGlobalNorm"]


class GradClipByValue(GradientClipByValue):
    """Clip every element to [`min_value`, `max_value`]; None for `min_value` is -`max_value`."""

    def __init__(self, min_value: float | None, max_value: float | None = None) -> None:
        if max_value is None:
            raise TypeError(
                f"GradClipByValue({min_value!r}) has no max_value; expected a number after the least value. Give "
                "both, as in GradClipByValue(-1.0, 1.0)"
            )
        super().__init__(max_value, min_value)


class GradClipByNorm(GradientClipByNorm):
    """Scale each gradient down to a norm of at most `clip_norm`."""

    def __init__(self, clip_norm: float) -> None:
        super().__init__(clip_norm)


class GradClipByGlobalNorm(GradientClipByGlobalNorm):
    """Scale all gradients down to a norm of all of them of at most `max_global_norm`; `dtype` changes nothing."""

    def __init__(self, max_global_norm: float, dtype: str = "float32") -> None:
        super().__init__(max_global_norm)
