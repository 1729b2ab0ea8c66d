"""The tracer: receives the ops of layers, operators and optimizers in eager mode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fluidjax import unique_name
from fluidjax.base.dispatch import compute_in_the_calling_thread
from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.flags import FLAGS
from fluidjax.base.places import default_place
from fluidjax.eager.arguments import failure, first, known_slots, values_of, without_absent
from fluidjax.eager.backward.engine import Engine, RecordingEngine
from fluidjax.eager.backward.tape import UNWANTED, OpNode, Pass, key_of, places
from fluidjax.eager.creating import Creating
from fluidjax.eager.forms import expected, expected_kernel, kernel_of_form
from fluidjax.eager.functions.run_program import run_program
from fluidjax.eager.kernels import Kernel, kernel_of
from fluidjax.eager.made import Made
from fluidjax.eager.numbers import opened
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.repeated.passes import Passes, Watched, repeated
from fluidjax.eager.repeated.replay import Call, Replay
from fluidjax.eager.sequences.points import bits
from fluidjax.eager.slots import flatten
from fluidjax.eager.values import Spec, Value, fresh_zeros, is_plain, ones
from fluidjax.eager.variables.varbase import VarBase, gradient_of, recorded
from fluidjax.execution.executables.allocator import keep_freed_memory
from fluidjax.framework.guards import default_main_program
from lowering import get_op


class Tracer(Creating):
    """Runs ops immediately, and keeps a tape of those through which gradients flow.

    Attributes:
        place: the place layers were told to run on.
        ids: the number of the next variable named here (see ``framework.direct``), under "tmp".
    """

    def __init__(self, place: Any = None) -> None:
        compute_in_the_calling_thread()
        keep_freed_memory()
        self.place = default_place() if place is None else place
        self._train_mode, self.made = True, Made()
        self.ids = {"tmp": 0}
        self.traced: list[Call] | None = None  # the ops traced since ``calls`` was entered
        self.recording: Any = None  # records the ops that run, to write them as a program

    # Modes.

    def train_mode(self) -> None:
        """Record what gradients need."""
        self._train_mode = True

    def eval_mode(self) -> None:
        """Stop recording."""
        self._train_mode = False

    @contextlib.contextmanager
    def no_grad(self) -> Iterator[None]:
        """Context manager: nothing is recorded."""
        before, self._train_mode = self._train_mode, False
        try:
            yield
        finally:
            self._train_mode = before

    # Ops.

    def trace_op(
        self,
        type: str,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        stop_gradient: bool = False,
    ) -> None:
        """Run an op; arguments as for ``Block.append_op``.

        Args:
            inputs: a variable, or a list of variables, per slot.
            outputs: likewise; their values are overwritten.
            stop_gradient: whether to leave the op unrecorded.
        """
        ins, in_layout = flatten(inputs) if inputs else ([], ())
        outs, out_layout = flatten(outputs) if outputs else ([], ())
        kernel = expected(type, attrs or {}, ins, in_layout, outs, out_layout)
        if kernel is None:
            if type == "run_program":
                return run_program(self, inputs or {}, outputs or {}, attrs or {})
            held = known_slots(get_op(type), inputs or {}, outputs or {})
            if held is not None:
                return self.trace_op(type, *held, attrs, stop_gradient)
            kernel = kernel_of_form(type, attrs or {}, ins, in_layout, outs, out_layout)
            if kernel.movable:
                kernel, ins = self._with_operands(kernel, ins)  # type: ignore[assignment]
        if kernel.simple and not stop_gradient and self.follow(kernel, ins, outs) is not None:
            return
        if kernel.definition.absent:
            present = without_absent(kernel.definition, inputs or {})
            if present != inputs:
                return self.trace_op(type, present, outputs, attrs, stop_gradient)
        if self.traced is not None:
            self.traced.append((kernel, ins, outs))
        results = self.run(kernel, values_of(type, ins))
        if kernel.definition.updates:
            for slot, result in zip(kernel.definition.updates, results[len(outs) :], strict=True):
                argument = inputs[slot]  # type: ignore[index]
                (argument[0] if isinstance(argument, (list, tuple)) else argument)._value = result
        if stop_gradient:
            for out, result in zip(outs, results, strict=False):
                out._value = result
        else:
            self._bind(kernel, ins, outs, results)

    @contextlib.contextmanager
    def calls(self) -> Iterator[list[Call]]:
        """The list is filled with the ops traced inside."""
        before, self.traced = self.traced, []
        try:
            yield self.traced
        finally:
            self.traced = before

    @staticmethod
    def replay(calls: list[Call], given: Sequence[VarBase]) -> Replay:
        """The traced ops, to be repeated with other variables in place of `given`."""
        return Replay(calls, given)

    def op(
        self,
        type: str,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any],
        slots: tuple[str, ...],
        direct: bool = True,
    ) -> list[Any]:
        """Run an op whose outputs are fresh variables; returns them.

        Args:
            inputs: per slot a variable, or a list of them.
            slots: the output slots, of one variable each.
            direct: supplies the variables' numbers (see ``framework.direct``).
        """
        outs = self.again(type, inputs, attrs, slots, direct)
        if outs is None:
            ids = self.ids_of(direct)
            outs = [VarBase._temporary(ids) for _ in slots]
            for out in outs:
                out._declared = Spec.of((), first(inputs).dtype)
            self.trace_op(type, inputs, dict(zip(slots, outs, strict=True)), attrs)
        return outs

    def again(
        self,
        type: str,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any],
        slots: tuple[Any, ...],
        direct: bool = True,
    ) -> list[Any] | None:
        """Run the op that came next last time; None, without effect, if this is another one.

        Args:
            slots: the slots of its outputs, all fresh variables; with their number if a slot has several.
            direct: supplies the variables' numbers (see ``framework.direct``).
        """
        kernel = expected_kernel()
        if kernel is None or kernel.type != type or kernel.outs != slots:
            return None
        try:
            if kernel.given_fresh != attrs:
                return None
        except ValueError:  # arrays among them
            return None
        if not kernel.movable and tuple(inputs) == kernel.ins:
            known = self.follow(kernel, [*inputs.values()], None, direct)  # most slots hold a variable, not a list
            if known is not None:
                return known
        ins, layout = flatten(inputs)
        if layout != kernel.ins or kernel.declared:  # declared for inputs of one type, and these may be of another
            return None
        return self.apply(kernel, ins, direct)

    def _with_operands(self, kernel: Kernel, ins: Sequence[VarBase]) -> tuple[Kernel, Sequence[VarBase]]:
        """A kernel and its inputs, with changing numbers as operands (see ``numbers``)."""
        point = recorder.point
        if (point.expected is not None and point.expected.kernel is kernel) or self.recording is not None:
            return kernel, ins
        if FLAGS["FLAGS_cpu_deterministic"]:  # with numbers as operands, XLA computes some ops differently
            return kernel, ins
        return opened(kernel, ins, point, recorder.apart) or (kernel, ins)

    def apply(self, kernel: Kernel, ins: Sequence[VarBase], direct: bool = True) -> list[Any]:
        """Fresh variables with the results of a kernel; `direct` supplies their numbers."""
        if kernel.movable:
            if recorder.promised is not None:
                known = self.follow(kernel, ins, None, direct)
                if known is not None:
                    return known
            kernel, ins = self._with_operands(kernel, ins)
        known = self.follow(kernel, ins, None, direct)
        if known is not None:
            return known
        values = values_of(kernel.type, ins)
        ids = self.ids_of(direct)
        outs = [VarBase._temporary(ids) for _ in range(kernel.width)]
        if self.traced is not None:
            self.traced.append((kernel, ins, outs))
        self._bind(kernel, ins, outs, self.run(kernel, values))
        return outs

    def follow(
        self, kernel: Kernel, ins: Sequence[VarBase], outs: list[VarBase] | None = None, direct: bool = True
    ) -> list[VarBase] | None:
        """Bind `outs`, None for fresh variables, to the results of the op that came next last time; returns them.

        None, without effect, for another op. This is ``run`` and ``_bind`` with calls inlined: nearly every op of
        a training loop takes this path.
        """
        if self.traced is not None or self.recording is not None:
            return None
        if recorder.promised is not None:
            found = recorder.promised.follow(self, kernel, ins, outs, self.ids_of(direct))
            if found is not None:
                return found
        point = recorder.point.expected
        if point is None or point.kernel is not kernel:
            return None
        known = recorder.follow(point, ins)
        if known is None:
            return None
        node = None
        parents, flows = known
        if not self._train_mode:
            flows = 0
        if flows and kernel.differentiable:
            if point.flows != flows:
                point.flows, point.plan = flows, OpNode.plan_of(kernel, parents)
            node = OpNode(kernel, ins, parents, point.outs, point.plan)
        elif point.flows != flows:
            point.flows = flows
        if outs is None:
            ids = self.ids if direct else unique_name.generator.ids
            outs, values = recorded(point, node, False if flows else None, ids)
            if node is not None and node.plan.reads:
                node.save(outs, values)
            return outs
        values = recorder.record(point)
        k = 0
        for out in outs:
            if out._held is None:
                out._held = values[k]
            else:
                out._value = values[k]
            if node is not None:
                out._place = node, k
            elif out._place is not None:
                out._place = None
            if flows and out._stop_gradient is None:
                out._stop_gradient = False
            k += 1  # noqa: SIM113 (enumerate takes longer)
        if node is not None and node.plan.reads:
            node.save(outs, values)
        return outs

    def trace_kernel(self, kernel: Kernel, ins: Sequence[VarBase], forward: Any = None) -> list[VarBase | None]:
        """Run a kernel on variables; new variables receive its results.

        Args:
            forward: for the kernel of a gradient op, the node whose gradient it is part of.
        """
        results = self.run(kernel, values_of(kernel.type, ins))
        outs = [None if r is None else VarBase._of(None, None) for r in results]
        self._bind(kernel, ins, outs, results, forward)
        return outs

    def _bind(
        self,
        kernel: Kernel,
        ins: Sequence[VarBase],
        outs: Sequence[VarBase | None],
        results: Sequence[Value | None],
        forward: Any = None,
    ) -> None:
        """Assign the results to the output variables, and record their origin on the tape."""
        parents = None
        if self._train_mode:
            for var in ins:
                if var._stop_gradient is False:
                    parents = places(ins)
                    break
        if kernel.takes_key and recorder.point.kernel is kernel:  # it is never followed, which would note this
            recorder.point.flows = 0 if parents is None else bits([place is not UNWANTED for place in parents])
        node = None
        if parents is not None and kernel.differentiable:
            specs = tuple([None if r is None else r.spec for r in results])
            node = OpNode(kernel, ins, parents, specs, OpNode.plan_of(kernel, parents, forward), forward)
            if node.plan.reads:
                node.save(outs, results)
        k = 0
        for out, result in zip(outs, results):  # noqa: B905 (inputs that the op updates come after the outputs)
            if out is not None:
                out._value = result
                out._place = None if node is None else (node, k)
                if parents is not None and out._stop_gradient is None:
                    out._stop_gradient = False
            k += 1  # noqa: SIM113 (this is the way of every op, and enumerate takes longer)

    def run(self, kernel: Kernel, ins: Sequence[Value]) -> list[Value | None]:
        """The results of a kernel for input values, without recording."""
        try:
            return recorder.run(kernel, ins, default_main_program().random_seed if kernel.takes_key else 0)
        except EnforceNotMet:
            raise
        except Exception as error:
            raise failure(kernel, ins, error)  # noqa: B904  (it has its cause)

    def end_of_step(self) -> None:
        """Record that a training step has ended: what follows is compiled separately."""
        recorder.end_of_step()

    # Gradients.

    def backward(self, root: VarBase, strategy: Any = None, retain_graph: bool = False) -> None:
        """See ``VarBase.backward``."""
        promised = recorder.promised
        if root._place is None or (promised is not None and promised.backward(root, retain_graph)):
            return  # of a leaf, or of what an earlier pass began with, it changes nothing
        if root.stop_gradient or not repeated(recorder, root, retain_graph):
            self._pass(root, retain_graph)
        if not retain_graph:
            root._place = None  # what is computed from it later begins here

    def _pass(self, root: VarBase, retain: bool) -> None:
        """A backward pass; one that starts where another has started before is stored, to be repeated."""
        point = recorder.point
        watched = None
        if point.passes is None:
            point.passes = Passes()  # a pass that recurs will recur again
        elif root._place is not None and recorder.takes(0) and not root.stop_gradient and point.passes.observe():
            watched = Watched(recorder, root)
        begin = fresh_zeros(root._spec) if root.stop_gradient else self.run(_ones, [root._value])[0]  # type: ignore[list-item]
        walk = Pass(Engine(self), [(root, begin)], retain=retain)
        found = walk.run()
        key = key_of(root, root._place)
        if found[key][1] is begin and is_plain(root._spec) and not root.stop_gradient:  # no block need return it
            found[key] = root, ones(root._spec)
        if watched is not None and (known := watched.known(walk.used, found)) is not None:
            point.passes.add(known)
        for var, grad in found.values():
            var._set_gradient(grad)
        walk.end()

    def gradients(
        self,
        roots: Sequence[VarBase],
        inputs: Sequence[VarBase],
        root_grads: Sequence[VarBase | None],
        *,
        retain: bool,
        create: bool,
        constants: Sequence[VarBase] = (),
    ) -> list[VarBase | None]:
        """The gradients of `roots` with respect to `inputs`, None if there is none.

        Args:
            root_grads: the gradient of each root, None for ones.
            retain: whether the tape is kept.
            create: whether the gradients' own gradients can be computed.
            constants: variables that block gradients.
        """
        engine = RecordingEngine(self) if create else Engine(self)
        starts = [(r, self._start(engine, r, g)) for r, g in zip(roots, root_grads, strict=True)]
        keys: list[Any] = [key_of(v, v._place) for v in inputs]
        avoided = [key_of(v, v._place) for v in constants]
        walk = Pass(engine, starts, retain=retain, towards=keys, constants=avoided)
        found = walk.run()
        walk.end()
        grads = [None if v.stop_gradient or k not in found else found[k][1] for v, k in zip(inputs, keys, strict=True)]
        return [None if g is None else gradient_of(v, g, create) for g, v in zip(grads, inputs, strict=True)]

    def _start(self, engine: Engine, root: VarBase, grad: VarBase | None) -> Any:
        return self.run(_ones, [root._value])[0] if grad is None else engine.as_given(grad)  # type: ignore[list-item]


_ones = kernel_of("fill_any_like", {"value": 1.0}, ("X",), ("Out",), backward=True)
