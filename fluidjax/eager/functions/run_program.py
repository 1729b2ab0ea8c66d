"""The run_program op: ops of a static program as one op of an eager network.

Its gradient runs the program's own gradient ops later, on what the forward ops left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fluidjax.base.enums import to_numpy_dtype
from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.base.flags import flag
from fluidjax.eager.functions.python_ops import record
from fluidjax.eager.functions.segments import RecordedStretch
from fluidjax.eager.values import Value
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.execution.executables.executable import default_device
from fluidjax.execution.steps.seeds import next_seed
from fluidjax.framework import Program, program_view
from fluidjax.framework.names import EMPTY_VAR_NAME, grad_var_name
from lowering.engine.dataflow import flow
from lowering.engine.plan import runnable

_UNUSED = {EMPTY_VAR_NAME, "Fake_var"}  # the names of variables that stand for none


def run_program(tracer: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> None:
    """Run the ops ``[start_op_index, end_op_index)`` of a program's first block.

    The gradient of a variable ``v`` among the inputs is what the ops from ``end_op_index + 2 * len(Out)`` on write to
    ``v@GRAD``, given ``out@GRAD`` of each ``out``: the two ops for each output in between, with which
    ``fluid.gradients`` starts, make ones of it. What they need is kept on the tape, not in the scope of OutScope.

    Args:
        tracer: records it.
        inputs: X and Params, lists of variables: the ops read each by its name, and may write to it.
        outputs: Out: variables that get the values of their names; OutScope: a variable that holds a scope.
        attrs: global_block: the BlockDesc; start_op_index and end_op_index; is_test: whether no gradient follows.

    Raises EnforceNotMet without one of these, or if the ops do not write an output.
    """
    _check(outputs, attrs)
    variables = [v for slot in ("X", "Params") for v in _listed(inputs.get(slot)) if v.name not in _UNUSED]
    outs = [v for v in _listed(outputs.get("Out")) if v.name not in _UNUSED]
    names, wanted = tuple(v.name for v in variables), tuple(v.name for v in outs)
    block, start, end = (attrs[name] for name in _ATTRS)
    halves = _halves(block._program.SerializeToString(), int(start), int(end), names, wanted)
    seed = next_seed(halves.program)
    found = halves.forward.run({v.name: v._array() for v in variables}, seed)
    for var in (v for v in (*variables, *outs) if v.name in halves.written):
        var._value = Value(found[var.name])
    if attrs.get("is_test"):
        return
    kept = {n: v for n, v in found.items() if n in halves.needed}

    def backward(grads: Sequence[VarBase | None]) -> list[VarBase | None]:
        if tracer._train_mode:
            todo = "make the function @declarative: gradients of its gradients are recorded"
            raise EnforceNotMet(_told("gradients of its gradients", "create_graph=False", "create_graph=True", todo))
        given = {v.name: v._array() for v in variables if v.name in halves.needed}
        given |= {grad_var_name(out.name): _filled(out, grad) for out, grad in zip(outs, grads, strict=True)}
        return halves.gradients({**given, **kept}, seed)

    record(tracer, variables, outs, backward)


class _Halves:
    """The forward and the gradient ops of a program.

    Args:
        desc: the program, serialised.
        start, end: the range of the forward ops.
        names, outs: of the inputs and the outputs.

    Attributes:
        needed: what the gradient ops read.
        written: the inputs and outputs that the forward ops write.
    """

    def __init__(self, desc: bytes, start: int, end: int, names: Sequence[str], outs: Sequence[str]) -> None:
        self.program = Program.parse_from_string(desc)
        view = program_view(self.program)
        ops = view.blocks[0].ops
        settings: Any = {
            "platform": default_device().platform,
            "capacities": {},
            "checked": flag("FLAGS_check_values"),
        }
        forward, backward = runnable(ops[start:end]), runnable(ops[end + 2 * len(outs) :])
        made, self._grads = set(flow(view, forward)[1]), [grad_var_name(name) for name in names]
        self._backward = RecordedStretch(view, backward, self._grads, **settings)
        self.needed = frozenset(self._backward.reads)
        self.written = made.intersection([*names, *outs])
        missing = sorted(set(outs) - made)
        if missing:
            todo = "name the variables of Out as the program's are named"
            raise EnforceNotMet(_told(f"Out {missing}", "what ops write", f"{sorted(made)}"[:300], todo))
        self.forward = RecordedStretch(view, forward, sorted(self.written | made & self.needed), **settings)

    def gradients(self, given: Mapping[str, Any], seed: Any) -> list[VarBase | None]:
        """Of each input its gradient; None if the gradient ops write none."""
        found = self._backward.run(given, seed)
        return [VarBase._of(n, Value(found[n])) if n in found else None for n in self._grads]


_halves = lru_cache(maxsize=32)(_Halves)  # a call in a training loop comes with the same program again
_ATTRS = "global_block", "start_op_index", "end_op_index"


def _check(outputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> None:
    missing = [name for name in _ATTRS if name not in attrs]
    if missing:
        raise EnforceNotMet(_told(f"no {missing}", f"the attributes {list(_ATTRS)}", f"{sorted(attrs)}", "give them"))
    scopes = _listed(outputs.get("OutScope"))
    if len(scopes) != 1 or not hasattr(scopes[0], "held_scope"):
        todo = "create it with type STEP_SCOPES, and call var.value().set_scope(fluid.core.Scope())"
        raise EnforceNotMet(_told("OutScope", "one variable that holds a scope", f"{len(scopes)} without", todo))


def _told(what: str, expected: str, received: str, todo: str) -> str:
    return explain(f"op run_program: {what}", expected, received, todo)


def _listed(argument: Any) -> list[VarBase]:
    return list(argument) if isinstance(argument, (list, tuple)) else [] if argument is None else [argument]


def _filled(out: VarBase, grad: VarBase | None) -> Any:
    return np.zeros(out.shape, to_numpy_dtype(out.dtype)) if grad is None else grad._array()
