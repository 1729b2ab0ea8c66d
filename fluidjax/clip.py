"""Gradient clipping: ops between the backward pass and the optimizer."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.base.mode import in_dygraph_mode
from fluidjax.base.unknown import unknown_name
from fluidjax.error_clip import BaseErrorClipAttr as BaseErrorClipAttr
from fluidjax.error_clip import ErrorClipByValue
from fluidjax.error_clip import error_clip_callback as error_clip_callback
from fluidjax.framework import (
    Parameter,
    Program,
    Variable,
    default_main_program,
    name_scope,
)
from fluidjax.framework.names import OP_NAMESCOPE, OP_ROLE_VAR
from fluidjax.writing import clip_ops

__all__ = [
    "set_gradient_clip",
    "ErrorClipByValue",
    "GradientClipByValue",
    "GradientClipByNorm",
    "GradientClipByGlobalNorm",
]

Pairs = list[tuple[Any, Any]]


class GradientClipBase:
    """Base class of gradient clips: called with pairs of parameter and gradient, they return clipped pairs.

    `need_clip` is a predicate on parameters that selects the gradients to clip; all by default.
    """

    def __init__(self, need_clip: Callable[[Any], bool] | None = None) -> None:
        if need_clip is not None and not callable(need_clip):
            raise TypeError(
                f"The type of need_clip must be funciton, got {need_clip!r}. Pass a function of a parameter that "
                "returns True where clipping is required."
            )
        self._need_clip_func = need_clip

    def __call__(self, params_grads: Pairs) -> Pairs:
        """The pairs with clipped gradients; parameters without a gradient are dropped."""
        _warn_of_redundant(params_grads)
        with name_scope("gradient_clip"):
            result, renamed = self._clip_all([(p, g) for p, g in params_grads if g is not None])
        _correct_role_vars(result, renamed)
        return result

    def _wanted(self, param: Any) -> bool:
        return self._need_clip_func is None or bool(self._need_clip_func(param))

    def _clip_all(self, params_grads: Pairs) -> tuple[Pairs, dict[str, str]]:
        """The pairs with clipped gradients, and the names of these by those of the parameters."""
        return self._clip_each(params_grads, self._clip_one)

    def _clip_each(self, params_grads: Pairs, clip: Callable[[Any], Any]) -> tuple[Pairs, dict[str, str]]:
        result, renamed = [], {}
        for param, grad in params_grads:
            if not self._wanted(param):
                result.append((param, grad))
                continue
            with param.block.program._optimized_guard([param, grad]):
                clipped = clip(grad)
            renamed[param.name] = clipped.name
            result.append((param, clipped))
        return result, renamed

    def _clip_one(self, grad: Variable) -> Variable:
        raise TypeError(f"{type(self).__name__} clips nothing. Use GradientClipByValue, ByNorm or ByGlobalNorm.")

    # The steps that ``set_gradient_clip`` takes: first all parameters are looked at, then each is clipped.

    def _process_context(self, context: dict[str, Any], param: Any, grad: Variable) -> None:
        """Inspect one gradient, recording what is needed in `context`."""

    def _create_operators(self, param: Any, grad: Variable) -> tuple[Any, Variable]:
        return param, self._clip_one(grad)


class GradientClipByValue(GradientClipBase):
    """Clip every element to [`min`, `max`]; `min` is -`max` by default."""

    def __init__(self, max: float, min: float | None = None, need_clip: Callable[[Any], bool] | None = None) -> None:
        super().__init__(need_clip)
        if min is None:
            if not max > 0.0:
                raise ArgumentError(
                    f"GradientClipByValue: max is {max}, and without min it must be positive. Give min too."
                )
            min = -max
        self.max = float(max)
        self.min = float(min)

    def __str__(self) -> str:
        return f"Gradient Clip By Value, min = {self.min:f}, max={self.max:f}"

    def _clip_one(self, grad: Variable) -> Variable:
        return clip_ops.clip(grad, self.min, self.max)


class GradientClipByNorm(GradientClipBase):
    """Scale each gradient down to a norm of at most `clip_norm`."""

    def __init__(self, clip_norm: float, need_clip: Callable[[Any], bool] | None = None) -> None:
        super().__init__(need_clip)
        self.clip_norm = float(clip_norm)

    def __str__(self) -> str:
        return f"Gradient Clip By Norm, clip_norm={self.clip_norm:f}"

    def _clip_one(self, grad: Variable) -> Variable:
        return clip_ops.clip_by_norm(grad, self.clip_norm)


class GradientClipByGlobalNorm(GradientClipBase):
    """Scale all gradients by clip_norm / max(clip_norm, norm), where norm is the L2 norm of all of them together.

    `group_name` groups parameters whose clips are set by ``set_gradient_clip``.

    Examples:
        >>> w = fluid.layers.create_parameter([2], "float32", "w", default_initializer=fluid.initializer.Constant(1.0))
        >>> clip = fluid.clip.GradientClipByGlobalNorm(clip_norm=1.0)
        >>> loss = fluid.layers.reduce_sum(w * fluid.layers.assign(np.float32([3, 4])))  # a gradient of norm 5
        >>> ops, grads = fluid.optimizer.SGD(1.0, grad_clip=clip).minimize(loss)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> startup, step = exe.run(fluid.default_startup_program()), exe.run(fluid.default_main_program())
        >>> print(np.array(fluid.global_scope().find_var("w").get_tensor()).round(3))
        [0.4 0.2]
    """

    def __init__(
        self, clip_norm: float, group_name: str = "default_group", need_clip: Callable[[Any], bool] | None = None
    ) -> None:
        super().__init__(need_clip)
        self.clip_norm = float(clip_norm)
        self.group_name = group_name

    def __str__(self) -> str:
        return f"Gradient Clip By GlobalNorm, global_norm={self.clip_norm:f}"

    def __call__(self, params_grads: Pairs) -> Pairs:
        """The pairs with clipped gradients, or as they came where there is nothing to clip."""
        return super().__call__(params_grads) if any(map(self._takes, params_grads)) else params_grads

    def _takes(self, pair: tuple[Any, Any]) -> bool:
        return pair[1] is not None and self._wanted(pair[0])

    def _clip_all(self, params_grads: Pairs) -> tuple[Pairs, dict[str, str]]:
        squares = []
        for param, grad in filter(self._takes, params_grads):
            with param.block.program._optimized_guard([param, grad]):
                squares.append(clip_ops.square_sum(grad))
        # The last pair's name stands for the ops that all of them share.
        param, grad = params_grads[-1]
        with param.block.program._optimized_guard([param, grad]):
            norm = clip_ops.norm_of(squares)
            factor = clip_ops.factor(clip_ops.limit(self.clip_norm, norm), norm)
        return self._clip_each(params_grads, lambda grad: clip_ops.multiply(grad, factor))

    def _process_context(self, context: dict[str, Any], param: Any, grad: Variable) -> None:
        if self.group_name not in context:
            limit = clip_ops.limit(self.clip_norm, grad)
            context[self.group_name] = {"squares": [], "value": self.clip_norm, "limit": limit}
        group = context[self.group_name]
        if group["value"] != self.clip_norm:
            raise ArgumentError(
                f"All parameters' 'clip_norm' of a same group should be the same: group {self.group_name} has "
                f"{group['value']}, parameter {param.name} has {self.clip_norm}. Give one value, or another group_name."
            )
        group["squares"].append(clip_ops.square_sum(grad))
        self.context = context

    def _create_operators(self, param: Any, grad: Variable) -> tuple[Any, Variable]:
        group = self.context[self.group_name]
        if "scale" not in group:
            group["scale"] = clip_ops.factor(group["limit"], clip_ops.norm_of(group["squares"]))
        return param, clip_ops.multiply(grad, group["scale"])


def _warn_of_redundant(pairs: Pairs) -> None:
    if any(getattr(param, "gradient_clip_attr", None) is not None for param, _ in pairs):
        warnings.warn(
            "'set_gradient_clip' will be ineffective: the optimizer has its own grad_clip, which is preferred. Remove "
            "one of them.",
            stacklevel=5,
        )


def _correct_role_vars(params_grads: Pairs, renamed: dict[str, str]) -> None:
    """Make the clip's ops refer to the gradients by their clipped names, as data parallelism expects."""
    if not renamed:
        return
    programs = {id(p.block.program): p.block.program for p, g in params_grads}
    for program in programs.values():
        for op in program.global_block().ops:
            if not op.has_attr(OP_NAMESCOPE) or "gradient_clip" not in op.attr(OP_NAMESCOPE):
                continue
            role_var = op.attr(OP_ROLE_VAR) if op.has_attr(OP_ROLE_VAR) else []
            if role_var and role_var[0] in renamed:
                op._set_attr(OP_ROLE_VAR, [role_var[0], renamed[role_var[0]]])


def set_gradient_clip(
    clip: GradientClipBase, param_list: Sequence[Any] | None = None, program: Program | None = None
) -> None:
    """Make optimizers clip the gradients of `param_list` (parameters or names; all of the program by default).

    Call it after the last layer and before ``minimize``: parameters made later have no clip, and while one has none,
    nothing is clipped. A parameter's last setting counts. An optimizer's own ``grad_clip`` overrides it.
    """
    if in_dygraph_mode():
        raise AssertionError(
            "set_gradient_clip does not work in eager mode: expected static mode. Give the optimizer grad_clip=."
        )
    warnings.warn(
        "set_gradient_clip is not recommended and may be removed. Give the optimizer the clip instead: "
        "optimizer(grad_clip=...).",
        stacklevel=2,
    )
    if not isinstance(clip, GradientClipBase):
        raise TypeError(
            f"'clip' should be an instance of GradientClipBase's derived class, got {clip!r}. Pass for instance "
            "GradientClipByGlobalNorm(1.0)."
        )
    block = (default_main_program() if program is None else program).block(0)
    for op in block.ops:
        if op.has_attr(OP_NAMESCOPE) and "optimizer" in op.attr(OP_NAMESCOPE):
            warnings.warn(
                "'minimize' has been invoked before, this will make 'set_gradient_clip' be ineffective! Please invoke "
                "'set_gradient_clip' before 'minimize'.",
                stacklevel=2,
            )
            break
    params = block.all_parameters() if param_list is None else list(param_list)
    params = [block.var(p) if isinstance(p, str) else p for p in params]
    for param in params:
        if not isinstance(param, Parameter):
            raise TypeError(f"'param_list' holds {param!r}: expected parameters or their names. Pass all_parameters().")
        param.gradient_clip_attr = copy.deepcopy(clip)


def append_gradient_clip_ops(param_grads: Pairs) -> Pairs:
    """Apply the clips set by ``set_gradient_clip``; returns the pairs with clipped gradients.

    As in Fluid 1.8 they count together: if any parameter with a gradient has no clip, none of them is clipped, and if
    parameters have different clips, the last one's is applied to all. Both are warned of. Where none is clipped so, a
    clip that a parameter was made with (``ParamAttr(gradient_clip=)``, until 1.7) clips this parameter's gradient.
    """
    pairs = [(param, grad) for param, grad in param_grads if grad is not None]
    clips = _clips_set(pairs)
    if len(clips) < len(pairs):
        return _clip_own(param_grads)
    _warn_of_differing(pairs, clips)
    return _create_clips(pairs, clips[-1:] * len(pairs))


def _clips_set(pairs: Pairs) -> list[GradientClipBase]:
    """The clips of the parameters, as far as all before them have one, too. What they inspect is written."""
    context: dict[str, Any] = {}
    clips: list[GradientClipBase] = []
    for param, grad in pairs:
        with param.block.program._optimized_guard([param, grad]), name_scope("gradient_clip_@CLIP"):
            clip = _clip_of(param, "gradient_clip_attr")
            if clip is None:
                _warn_of_unclipped(param, pairs)
                break
            clip._process_context(context=context, param=param, grad=grad)
        clips.append(clip)
    return clips


def _create_clips(pairs: Pairs, clips: list[GradientClipBase]) -> Pairs:
    result, renamed = [], {}
    for (param, grad), clip in zip(pairs, clips, strict=True):
        # The scope's name is spelt so in Fluid, and is kept in files.
        with param.block.program._optimized_guard([param, grad]), name_scope("graident_clip_@CLIP"):
            param, clipped = clip._create_operators(param=param, grad=grad)
        renamed[param.name] = clipped.name
        result.append((param, clipped))
    _correct_role_vars(result, renamed)
    return result


def _clip_own(param_grads: Pairs) -> Pairs:
    """`param_grads`, those of parameters that were made with a clip clipped by it."""
    clips = [_clip_of(param, "own_gradient_clip") if grad is not None else None for param, grad in param_grads]
    chosen = [(pair, clip) for pair, clip in zip(param_grads, clips, strict=True) if clip is not None]
    context: dict[str, Any] = {}
    for (param, grad), clip in chosen:
        with param.block.program._optimized_guard([param, grad]), name_scope("gradient_clip_@CLIP"):
            clip._process_context(context=context, param=param, grad=grad)
    clipped = iter(_create_clips([pair for pair, _ in chosen], [clip for _, clip in chosen]))
    return [pair if clip is None else next(clipped) for pair, clip in zip(param_grads, clips, strict=True)]


def _warn_of_unclipped(param: Any, pairs: Pairs) -> None:
    clipped = [other.name for other, _ in pairs if getattr(other, "gradient_clip_attr", None) is not None]
    if clipped:
        warnings.warn(
            f"No gradient is clipped: parameter {param.name} has no clip, though {len(clipped)} of {len(pairs)} "
            f"parameters have one ({clipped[0]}, ...). Call set_gradient_clip for all of them, after the last layer; "
            "to clip some only, give the optimizer grad_clip= with need_clip=.",
            stacklevel=5,
        )


def _warn_of_differing(pairs: Pairs, clips: list[GradientClipBase]) -> None:
    settings = [(str(clip), getattr(clip, "group_name", "")) for clip in clips]
    if len(set(settings)) > 1:
        warnings.warn(
            f"Parameters have different clips, and the last one's clips all gradients: {settings[-1][0]}, set for "
            f"{pairs[-1][0].name}. Set one clip for all of them.",
            stacklevel=4,
        )


def _clip_of(param: Any, attribute: str) -> GradientClipBase | None:
    clip = getattr(param, attribute, None)
    if clip is not None and not isinstance(clip, GradientClipBase):
        raise TypeError(
            f"clip attribute of parameter {param.name} should be an instance of GradientClipBase, got {clip!r}. Set it "
            "with fluid.clip.set_gradient_clip."
        )
    return clip


ClipByValue = GradientClipByValue
ClipByNorm = GradientClipByNorm
ClipByGlobalNorm = GradientClipByGlobalNorm

__getattr__ = unknown_name(__name__)
