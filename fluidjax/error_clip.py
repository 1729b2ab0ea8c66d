"""Clipping of the gradients of single variables, in the middle of the backward pass."""

from __future__ import annotations

from fluidjax.framework import Block


class BaseErrorClipAttr:
    """Clipping of a single variable's gradient during the backward pass."""

    def _append_clip_op(self, block: Block, grad_name: str) -> None:
        raise TypeError(f"{type(self).__name__} clips nothing. Use ErrorClipByValue.")


class ErrorClipByValue(BaseErrorClipAttr):
    """Clip a variable's gradient to [`min`, `max`] as soon as it is computed; `min` is -`max` by default.

    Set on a variable by ``var._set_error_clip(...)``.
    """

    def __init__(self, max: float, min: float | None = None) -> None:
        self.max = float(max)
        self.min = -self.max if min is None else float(min)

    def __str__(self) -> str:
        return f"ByValue, min={self.min:f}, max={self.max:f}"

    def _append_clip_op(self, block: Block, grad_name: str) -> None:
        block._append_op_desc("clip", {"X": [grad_name]}, {"Out": [grad_name]}, {"min": self.min, "max": self.max})


def error_clip_callback(block: Block, context: dict[str, str]) -> None:
    """Called after a gradient op is appended: clips those of its outputs whose variable has an error clip.

    `context` maps names of gradients to names of their variables.
    """
    for grad_name in block.ops[-1].output_arg_names:
        if grad_name not in context:
            continue
        clip = getattr(block._var_recursive(context[grad_name]), "error_clip", None)
        if clip is None:
            continue
        if not isinstance(clip, BaseErrorClipAttr):
            raise TypeError(
                f"variable {context[grad_name]}: its error_clip is {clip!r}. Expected an ErrorClipByValue. Set it with "
                "var._set_error_clip(fluid.clip.ErrorClipByValue(max))."
            )
        clip._append_clip_op(block, grad_name)
