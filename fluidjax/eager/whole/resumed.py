"""Recording what has come of a promised step (see ``promised``), because somebody looks or something else comes."""

from __future__ import annotations

from typing import Any

from fluidjax.base.flags import FLAGS
from fluidjax.eager.recorded.pending import LIMIT, recorder
from fluidjax.eager.values import cleared
from fluidjax.eager.variables.varbase import VarBase

CALL, PASS, UPDATE = range(3)  # what came last


def record(promise: Any) -> None:
    """Record what has come."""
    step, together = promise.step, promise.together
    limit, recorder.limit = recorder.limit, LIMIT
    blocks, FLAGS["FLAGS_eager_blocks"] = FLAGS["FLAGS_eager_blocks"], True
    tracer = promise.tracer
    before, tracer._train_mode = tracer._train_mode, True
    try:
        together.part()
        made = _record_call(promise)
        _record_ops(promise, made)
        promise.node.real = [made[code]._place for code in made]
        if promise.came >= PASS:
            for reference, code in promise.outputs:
                if code not in made and (var := reference()) is not None:  # a gradient
                    var._held = None
            tracer.backward(made[step.root])
        if promise.came == UPDATE:
            promise.replay.run(tracer, promise.given)
    finally:
        tracer._train_mode = before
        recorder.limit, FLAGS["FLAGS_eager_blocks"] = limit, blocks
    if promise.cleared:
        for var in step.gradients:
            var._value = cleared(var._spec)
    together.values = [var._value for var in [*step.updated, *step.gradients]]


def _record_call(promise: Any) -> dict[int, Any]:
    """Output -> its variable."""
    step, body = promise.step, promise.step.body
    outer = {k: n for n, (k, _, _) in enumerate(step.outer)}
    variables, values = [], []
    for k, number in enumerate(step.numbers):
        if number is not None:
            variables.append(step.updated[number])
            values.append(promise.together.values[number])
            continue
        var, value = promise.variables[outer[k]], promise.values[outer[k]]
        if promise.came >= PASS:  # its array may have changed since
            var = VarBase._of(None, value, var._stop_gradient)
        variables.append(var)
        values.append(value)
    drawn = [values[k] if value is None else value for k, value in zip(body.leaves, promise.leaves, strict=False)]
    there = [reference() for reference, _ in promise.outputs[: len(body.fresh)]]
    outputs = body.record(recorder, variables, drawn, promise.bases, there)
    if (call := step.call()) is not None:
        recorder.parts.append(call)
    return {body.results[k].code: var for k, var in zip(body.fresh, outputs, strict=False)}  # then what it replaces


def _record_ops(promise: Any, made: dict[int, Any]) -> None:
    """Record the ops that have come, and add their outputs."""
    tracer, number = promise.tracer, len(made)
    for n, (op, read) in enumerate(zip(promise.step.ops, promise.taken, strict=False)):
        given = iter(read)
        ins, values, outs = [], [], []
        for ref, flows in zip(op.refs, op.flows, strict=True):
            if ref in made and not flows and made[ref]._stop_gradient is False:  # it was stopped, and is gone
                made[ref]._stop_gradient = True
            var, value = (made[ref], made[ref]._value) if ref in made else next(given)
            if promise.came >= PASS and ref not in made:  # its array may have changed since
                var = VarBase._of(None, value, var._stop_gradient)
            ins.append(var)
            values.append(value)
        for code, _ in op.outs:
            there = promise.outputs[number][0]()
            var = VarBase._of(None, None, op.stop_gradient) if there is None else there
            var._held = var._place = None
            made[code] = var
            outs.append(var)
            number += 1
        key = promise.draws.get(n)
        results = tracer.run(op.kernel, values) if key is None else recorder.run(op.kernel, values, key)
        tracer.__class__._bind(tracer, op.kernel, ins, outs, results)
