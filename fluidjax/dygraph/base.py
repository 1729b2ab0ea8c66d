"""Eager mode on and off, values in, gradients out."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base import mode
from fluidjax.base.errors import ArgumentError, EnforceNotMet, explain
from fluidjax.base.mode import current_tracer, follows_training, in_dygraph_mode, tracer_guard
from fluidjax.base.unknown import unknown_name
from fluidjax.dygraph.grad_arguments import check_inputs, check_settings, constants_of, starts_of, variables_of
from fluidjax.eager.recorded.device import running_at
from fluidjax.eager.tracer import Tracer
from fluidjax.eager.variables.varbase import ParamBase, VarBase
from fluidjax.framework import ComplexVariable, Program, default_main_program, program_guard
from fluidjax.wrapped_decorator import signature_safe_contextmanager, wrap_decorator

__all__ = [
    "no_grad",
    "grad",
    "guard",
    "enable_dygraph",
    "disable_dygraph",
    "enable_imperative",
    "disable_imperative",
    "enabled",
    "to_variable",
]

_entered: contextlib.ExitStack | None = None  # what enable_dygraph opened


def enabled() -> bool:
    """Whether eager mode is on."""
    return in_dygraph_mode()


@signature_safe_contextmanager
def guard(place: Any = None) -> Iterator[None]:
    """Run layers and operators immediately (eager mode) within a ``with`` block.

    Generated names restart from 0, and the default programs are new.

    Args:
        place: the device to run on; by default the first accelerator, or else the CPU.

    Examples:
        >>> with fluid.dygraph.guard(fluid.CPUPlace()):
        ...     x = fluid.dygraph.to_variable(np.float32([1, 2]))
        ...     print((x + x).numpy())
        [2. 4.]
    """
    tracer = Tracer(place)
    with program_guard(Program(), Program()), unique_name.guard(), tracer_guard(tracer), running_at(tracer.place):
        yield


def enable_dygraph(place: Any = None) -> None:
    """Turn eager mode on until ``disable_dygraph``; no effect if it is already on."""
    global _entered
    if _entered is None:
        _entered = contextlib.ExitStack()
        _entered.enter_context(guard(place))


def disable_dygraph() -> None:
    """Turn off eager mode as enabled by ``enable_dygraph``; no effect if it is off."""
    global _entered
    if _entered is not None:
        stack, _entered = _entered, None
        stack.close()


enable_imperative = enable_dygraph
disable_imperative = disable_dygraph


@contextlib.contextmanager
def _switch_tracer_mode_guard_(is_train: bool = True) -> Iterator[None]:
    """Context manager: the tracer does or does not record what gradients need."""
    tracer = current_tracer()
    if tracer is None:
        with contextlib.nullcontext() if is_train else _stopped_gradients():
            yield
        return
    before, tracer._train_mode = tracer._train_mode, is_train
    try:
        yield
    finally:
        tracer._train_mode = before


@contextlib.contextmanager
def _stopped_gradients() -> Iterator[None]:
    """Context manager: results of eager functions implemented as programs carry no gradient."""
    block = default_main_program().current_block()
    start = len(block.ops)
    yield
    if follows_training():
        names = (name for op in block.ops[start:] for name in op.output_arg_names if name in block.vars)
        for var in (block.vars[name] for name in names):
            var.stop_gradient = var.stop_gradient or not var.persistable


def no_grad(func: Callable[..., Any] | None = None) -> Any:
    """Context manager or decorator that disables recording: results have ``stop_gradient`` True.

    ``with no_grad():``, ``@no_grad`` and ``@no_grad()`` all work.
    """
    if func is None:
        return _switch_tracer_mode_guard_(is_train=False)

    return _unrecorded(func)


@wrap_decorator
def _unrecorded(func: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with _switch_tracer_mode_guard_(is_train=False):
            return func(*args, **kwargs)

    return run


@signature_safe_contextmanager
def program_desc_tracing_guard(enable: bool) -> Iterator[None]:
    """Context manager: ops that run are (or are not) recorded in the program being written by ``TracedLayer.trace``."""
    recording = getattr(current_tracer(), "recording", None)
    if recording is None:
        yield
        return
    before, recording.enabled = recording.enabled, enable
    try:
        yield
    finally:
        recording.enabled = before


@signature_safe_contextmanager
def param_guard(parameters: dict[str, Any]) -> Iterator[None]:
    """Context manager: in static mode, make a dict's eager parameters parameters of the current program, by name."""
    eager = {} if in_dygraph_mode() else {key: p for key, p in parameters.items() if isinstance(p, ParamBase)}
    parameters.update({key: _static_parameter(p) for key, p in eager.items()})
    try:
        yield
    finally:
        parameters.update(eager)


def _static_parameter(eager: ParamBase) -> Any:
    block = default_main_program().global_block()
    if block.has_var(eager.name):
        return block.var(eager.name)
    settings = {key: getattr(eager, key) for key in ("trainable", "optimize_attr", "regularizer", "do_model_average")}
    made = block.create_parameter(shape=eager.shape, dtype=eager.dtype, name=eager.name, **settings)
    made.stop_gradient = eager.stop_gradient
    return made


def _switch_to_static_graph_(func: Callable[..., Any]) -> Callable[..., Any]:
    """`func`, run in static mode."""

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        with tracer_guard(None):
            return func(*args, **kwargs)

    return run


switch_to_static_graph = wrap_decorator(_switch_to_static_graph_)


def _dygraph_not_support_(func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        if in_dygraph_mode():
            raise AssertionError(
                f"We don't support {func.__name__} in imperative mode: expected static mode. Call it outside "
                "fluid.dygraph.guard()."
            )
        return func(*args, **kwargs)

    return run


def _dygraph_only_(func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not in_dygraph_mode():
            raise _outside(func.__name__)
        return func(*args, **kwargs)

    return run


def _outside(name: str) -> AssertionError:
    return AssertionError(
        f"We only support '{name}()' in dynamic graph mode: expected a call under a guard. Call it inside "
        "fluid.dygraph.guard(), or after fluid.enable_dygraph()."
    )


dygraph_not_support = wrap_decorator(_dygraph_not_support_)
dygraph_only = wrap_decorator(_dygraph_only_)


def to_variable(value: Any, name: str | None = None, zero_copy: bool | None = None) -> Any:
    """An eager variable with the value of an array; variables are returned unchanged.

    Args:
        value: a NumPy array (if complex, the result is a ComplexVariable), or a variable.
        name: name of the variable; generated if None.
        zero_copy: whether array and variable share memory, so that writes to either are visible in the other; the
            default on a CPU.

    Raises AssertionError outside a guard, TypeError for any other value, ArgumentError for texts and objects.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.float32([[1, 2]]))
        ...     print(x.shape, x.stop_gradient)
        [1, 2] True
    """
    tracer = mode.tracer
    if tracer is None:
        raise _outside("to_variable")
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "c":
            try:
                return tracer.to_variable(value, name, zero_copy is not False)
            except ValueError as error:  # an array of objects or texts
                raise ArgumentError(f"to_variable: {error}") from None
        name = unique_name.generate("_generated_var") if name is None else name
        real, imag = to_variable(value.real.copy(), f"{name}.real"), to_variable(value.imag.copy(), f"{name}.imag")
        return ComplexVariable(real, imag)
    if isinstance(value, (VarBase, ComplexVariable)):
        return value
    raise TypeError(
        f"The type of 'value' in fluid.dygraph.to_variable must be numpy.ndarray or Variable, but received "
        f"{type(value)}. Pass numpy.array(value)."
    )


@dygraph_only
def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool = False,
    no_grad_vars: Any = None,
    backward_strategy: Any = None,
) -> list[VarBase | None]:
    """Gradients of the sum of `outputs` with respect to `inputs`; leaves ``.gradient()`` of all variables unchanged.

    Args:
        outputs: a variable or a list of variables.
        inputs: likewise; may include intermediate results.
        grad_outputs: the gradient of each output, None for ones; None or an empty list: ones for all.
        retain_graph: whether the graph can be differentiated again; defaults to `create_graph`.
        create_graph: whether the gradients can themselves be differentiated.
        only_inputs: must be True.
        allow_unused: return None for an input on which no output depends.
        no_grad_vars: variables treated as constants.
        backward_strategy: a BackwardStrategy; affects the order of summation only.

    Raises AssertionError for an argument of another type. Raises EnforceNotMet if an input is not reached and
    `allow_unused` is False, if an output has no gradient, if a start has another dtype than its output, or if an input
    has stop_gradient True or is one of `no_grad_vars`.
    """
    roots, wanted = variables_of(outputs, "outputs"), variables_of(inputs, "inputs")
    retain = create_graph if retain_graph is None else retain_graph
    flags = {"create_graph": create_graph, "allow_unused": allow_unused, "only_inputs": only_inputs}
    check_settings({**flags, "retain_graph": retain}, backward_strategy)
    constants, starts = constants_of(no_grad_vars), starts_of(grad_outputs, roots)
    for root in roots:
        if root.stop_gradient:
            raise EnforceNotMet(
                explain(
                    f"grad: output {root.name} has no gradient",
                    "a variable whose stop_gradient is False",
                    "stop_gradient True: it depends on nothing that needs a gradient",
                    "set stop_gradient=False on the inputs before computing it",
                )
            )
    check_inputs(wanted, constants)
    tracer = current_tracer()
    found = tracer.gradients(roots, wanted, starts, retain=retain, create=create_graph, constants=constants)
    unused = [var.name for var, g in zip(wanted, found, strict=True) if g is None]
    if unused and not allow_unused:
        raise EnforceNotMet(
            explain(
                f"grad: the outputs do not depend on input {', '.join(unused)}",
                "inputs that the outputs were computed from, with stop_gradient False",
                "an input that no gradient reaches",
                "pass allow_unused=True to get None for it",
            )
        )
    return found


__getattr__ = unknown_name(__name__)
