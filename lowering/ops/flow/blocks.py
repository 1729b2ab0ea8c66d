"""Loops, branches and related ops: while, conditional_block, recurrent, select."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.engine.gradients.grad_maker import GradMaker
from lowering.errors import NeedsConcrete, NeedsExact, SlotError
from lowering.loops.branches import run_conditional, run_conditional_grad
from lowering.loops.carried import known_int, scalar, zero_gradient
from lowering.loops.recurrent import run_recurrent, run_recurrent_grad
from lowering.loops.while_grad import run_while_grad
from lowering.loops.while_loop import run_while
from lowering.ops.flow.arrays import shape_like
from lowering.ops.flow.gradients import conditional_block_grad_maker, recurrent_grad_maker, while_grad_maker
from lowering.program import OpSpec, OpView, VarInfo
from lowering.registry import Block, Value, op
from lowering.structure import same_structure
from lowering.values import LoDArray, SelectedRows, TensorArray, Wide, fill_padding


def _nothing(op: OpView, var_of: Any) -> dict[str, VarInfo]:
    """Variables outside the block keep their declared shapes."""
    return {}


@op("while", out="Out* StepScopes", kind="block", infer=_nothing)
def while_(
    x: list[Value],
    condition: list[Value],
    *,
    sub_block: Block,
    is_test: bool = False,
    skip_eager_deletion_vars: list[str] = (),
    ctx,
):
    """Run the ops of ``sub_block`` repeatedly while Condition is true; Out are the outer variables it writes.

    The block reads and writes variables of the enclosing blocks; its own are new in each step. StepScopes holds what
    ``while_grad`` needs from the steps.
    """
    run_while(ctx)


@while_.grad(type="while_grad", wrt="x", slots={"d_out": "Out@GRAD"}, continues="X@GRAD", changes="d_out")
def _(x: list[Value], out: list[Value] = (), d_out: list[Value] = (), step_scopes: Value = None, *, ctx):
    """Run the gradient block over the steps, last first; see lowering.loops.while_grad."""
    run_while_grad(ctx)


@op(out="Out* Scope", slots={"input_": "Input"}, kind="block", infer=_nothing)
def conditional_block(
    cond: list[Value],
    input_: list[Value],
    *,
    sub_block: Block,
    is_scalar_condition: bool = False,
    skip_eager_deletion_vars: list[str] = (),
    ctx,
):
    """Run the ops of ``sub_block`` once if the condition holds: Cond is true if is_scalar_condition, else every Input
    is nonempty. Otherwise, variables it would have written keep their value (zeros if they had none).
    """
    run_conditional(ctx, cond, input_, is_scalar_condition)


@conditional_block.grad(wrt="input_", slots={"d_out": "Out@GRAD"}, continues="Input@GRAD", changes="d_out")
def _(
    cond: list[Value], input_: list[Value], out: list[Value] = (), d_out: list[Value] = (), scope: Value = None, *, ctx
):
    """Run the gradient block if the block has run; zero gradients otherwise."""
    run_conditional_grad(ctx)


# In programs for inference: without a gradient.
conditional_block_infer = op(
    "conditional_block_infer", out="Out* Scope", slots={"input_": "Input"}, kind="block", infer=_nothing
)(conditional_block.fn)

_RECURRENT = {"inputs": "inputs", "initial_states": "initial_states", "parameters": "parameters"}


@op(out="outputs* step_scopes", slots=_RECURRENT, kind="block", infer=_nothing)
def recurrent(
    inputs: list[Value],
    initial_states: list[Value],
    parameters: list[Value],
    *,
    has_states: bool = False,
    ex_states: list[str],
    states: list[str],
    sub_block: Block,
    reverse: bool = False,
    is_train: bool = True,
    skip_eager_deletion_vars: list[str] = (),
    ctx,
):
    """Run the ops of ``sub_block`` for each slice of the inputs along the first axis, last one first if ``reverse``.

    In a step, an input's name denotes its slice, and ``ex_states[k]`` the value of ``states[k]`` at the previous step,
    or ``initial_states[k]`` at the first. The outputs of the steps are stacked.
    """
    run_recurrent(ctx)


@recurrent.grad(
    wrt="inputs initial_states parameters",
    slots={"d_outputs": "outputs@GRAD", "d_step_scopes": "step_scopes@GRAD"},
)
def _(
    inputs: list[Value],
    initial_states: list[Value],
    parameters: list[Value],
    outputs: list[Value] = (),
    d_outputs: list[Value] = (),
    step_scopes: Value = None,
    d_step_scopes: Value = None,
    *,
    ctx,
):
    """Run the gradient block for each step, last first; gradients of the parameters add up."""
    run_recurrent_grad(ctx)


while_.grad_maker(while_grad_maker)
conditional_block.grad_maker(conditional_block_grad_maker)
recurrent.grad_maker(recurrent_grad_maker)


@op(kind="block", infer=shape_like("Out", "X", None))
def rnn_memory_helper(x: Value, *, dtype: int = 5, ctx):
    """Out = X: gives a state of a recurrent step its own name."""
    return x


@rnn_memory_helper.grad
def _(x: Value, out: Value, d_out: Value, *, ctx):
    """X@GRAD = Out@GRAD; zeros when nothing wants Out."""
    return zero_gradient(x) if d_out is None else d_out


# --- choosing -----------------------------------------------------------------------------------------------------


@op(kind="block", infer=_nothing)
def select_input(x: list[Value], mask: Value, *, ctx):
    """Out = X[Mask], where Mask is a single int32."""
    chosen = known_int(mask)
    if chosen is not None:
        if not 0 <= chosen < len(x) or x[chosen] is None:
            raise SlotError(
                f"op select_input wants input {chosen} of {list(ctx.op.inputs['X'])}, which has no value;"
                " let every branch compute its result"
            )
        return x[chosen]
    if any(v is None for v in x):
        raise NeedsConcrete("the mask of select_input, as a branch has no value")
    if not all(same_structure(v, x[0]) for v in x):
        if any(isinstance(v, TensorArray) for v in x):
            raise NeedsConcrete("the mask of select_input, as the branches differ")
        raise NeedsConcrete("the mask of select_input, as the branches have different shapes")
    where = scalar(mask)
    return jax.tree_util.tree_map(lambda *v: _pick(where, v), *x)


@select_input.with_room
def _(x: list[Any], mask: Any):
    """Branches that differ in their numbers of rows alone: those of the one chosen, with room for the most."""
    parts = [
        v if isinstance(v, LoDArray) else LoDArray(v) for v in x if isinstance(v, (LoDArray, jax.Array, np.ndarray))
    ]
    if len(parts) < len(x) or not all(v.shape and v.nseq is None for v in parts):
        raise NeedsConcrete("the mask of select_input, as the branches differ")
    room = max(v.capacity for v in parts)
    grown = [LoDArray(_grown(v, room), v.lod, jnp.asarray(v.rows())) for v in parts]
    if not all(same_structure(v, grown[0]) for v in grown):
        raise NeedsConcrete("the mask of select_input, as the branches have different shapes")
    return jax.tree_util.tree_map(lambda *v: _pick(scalar(mask), v), *grown)


def _grown(rows: LoDArray, room: int) -> Any:
    """The data with room for more rows."""
    data = jnp.pad(rows.data, [(0, room - rows.capacity)] + [(0, 0)] * (rows.data.ndim - 1))
    return fill_padding(data, rows.rows(), backward=False)


def _pick(where: Any, values: tuple[Any, ...]) -> Any:
    result = jnp.asarray(values[0])
    for k, value in enumerate(values[1:], 1):
        result = jnp.where(where == k, jnp.asarray(value), result)
    return result


@select_input.grad_maker
def _(g: GradMaker):
    inputs = {"Mask": g.input("Mask"), "X": g.output_grad("Out")}
    outputs = {"Out": g.input_grad("X", drop_empty=False)}
    return [OpSpec("select_output", inputs, outputs, g.attrs)]


def _like_x(op: OpView, var_of: Any) -> dict[str, VarInfo]:
    return {n: VarInfo(info.shape) for n, info in shape_like("Out", "X", None)(op, var_of).items()}


@op(out="Out*", kind="block", infer=_like_x)
def select_output(x: Value, mask: Value, *, ctx):
    """Out[Mask] = X; the others are left unset, or zeros if Mask is not known while tracing."""
    count, chosen = ctx.arity("Out"), known_int(mask)
    if chosen is not None:
        return [x if k == chosen else None for k in range(count)]
    where = scalar(mask)
    return [_masked(x, where == k) for k in range(count)]


def _masked(x: Any, keep: Any) -> Any:
    if isinstance(x, SelectedRows):
        raise NeedsExact("select_output of a sparse gradient")
    if isinstance(x, LoDArray | Wide):
        return x.with_data(jnp.where(keep, x.data, jnp.zeros((), x.dtype)))
    return jax.tree_util.tree_map(lambda v: jnp.where(keep, v, jnp.zeros((), v.dtype)), x)


@select_output.grad_maker
def _(g: GradMaker):
    inputs = {"Mask": g.input("Mask"), "X": g.output_grad("Out")}
    return [OpSpec("select_input", inputs, {"Out": g.input_grad("X")}, g.attrs)]
