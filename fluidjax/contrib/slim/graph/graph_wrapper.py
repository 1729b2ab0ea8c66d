"""A program, its variables and its ops as compression looks at them and changes them."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fluidjax import io
from fluidjax.base.errors import explain
from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.compiler import BuildStrategy, CompiledProgram
from fluidjax.contrib.slim.graph.flops import flops
from fluidjax.contrib.slim.graph.tensors import tensor_of
from fluidjax.executor import Executor
from fluidjax.files.variables import stored_shape
from fluidjax.framework import Operator, Parameter, Program, Variable, program_guard

__all__ = ["GraphWrapper", "OpWrapper", "VarWrapper"]

OPTIMIZER_OPS = [
    "momentum",
    "lars_momentum",
    "adagrad",
    "adam",
    "adamax",
    "dpsgd",
    "decayed_adagrad",
    "adadelta",
    "rmsprop",
]
_READERS = ("reader", "double_buffer")  # no weights, though they persist

Nodes = Mapping[str, str] | Iterable[tuple[str, str]]  # a name for people, and the variable's


class VarWrapper:
    """A variable of a graph. Two are equal if their names are."""

    def __init__(self, var: Variable, graph: GraphWrapper):
        self._var = var
        self._graph = graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VarWrapper) and self._var.name == other._var.name

    def __hash__(self) -> int:
        return hash(self._var.name)

    def name(self) -> str:
        """Its name."""
        return self._var.name

    def shape(self) -> tuple[int, ...]:
        """Its declared shape; -1 for an unknown size."""
        return self._var.shape

    def set_shape(self, shape: Sequence[int]) -> None:
        """Declare another shape."""
        self._var.desc.set_shape([int(n) for n in shape])

    def inputs(self) -> list[OpWrapper]:
        """The ops that read it."""
        return [op for op in self._graph.ops() if self.name() in op.reads()]

    def outputs(self) -> list[OpWrapper]:
        """The ops that write it."""
        return [op for op in self._graph.ops() if self.name() in op.writes()]


class OpWrapper:
    """An op of a graph. Two are equal if they stand in the same place."""

    def __init__(self, op: Operator, graph: GraphWrapper):
        self._op = op
        self._graph = graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpWrapper) and self._place() == other._place()

    def __hash__(self) -> int:
        return hash(self._place())

    def _place(self) -> tuple[int, int]:
        return self._op.block.idx, self._op.idx

    def reads(self) -> list[str]:
        """The names of what it reads."""
        return self._op.input_arg_names

    def writes(self) -> list[str]:
        """The names of what it writes."""
        return self._op.output_arg_names

    def all_inputs(self) -> list[VarWrapper]:
        """What it reads."""
        return [self._graph.var(name) for name in self.reads()]

    def all_outputs(self) -> list[VarWrapper]:
        """What it writes."""
        return [self._graph.var(name) for name in self.writes()]

    def inputs(self, name: str) -> list[VarWrapper]:
        """The variables of the input slot ``name``."""
        return [self._graph.var(var) for var in self._op.input(name)]

    def outputs(self, name: str) -> list[VarWrapper]:
        """The variables of the output slot ``name``."""
        return [self._graph.var(var) for var in self._op.output(name)]

    def idx(self) -> int:
        """Its index in its block."""
        return self._op.idx

    def type(self) -> str:
        """Its type."""
        return self._op.type

    def is_bwd_op(self) -> bool:
        """Whether it is a gradient op."""
        return self.type().endswith("_grad")

    def is_opt_op(self) -> bool:
        """Whether it updates a parameter by an optimizer with state."""
        return self.type() in OPTIMIZER_OPS

    def attr(self, name: str) -> Any:
        """The attribute ``name``."""
        return self._op.attr(name)

    def set_attr(self, key: str, value: Any) -> None:
        """Set the attribute ``key``."""
        self._op._set_attr(key, value)


class GraphWrapper:
    """A program with named inputs and outputs.

    Args:
        program: the program; an empty one if None.
        in_nodes, out_nodes: pairs (name for people, name of the variable), in the order of feeds and fetches. The
            output "loss" (or "cost") is what is minimised.
    """

    def __init__(self, program: Program | None = None, in_nodes: Nodes | None = (), out_nodes: Nodes | None = ()):
        self.program = Program() if program is None else program
        self.persistables = {v.name: v for v in self.program.list_vars() if v.persistable}
        self.teacher_persistables: dict[str, Variable] = {}
        self.compiled_graph: CompiledProgram | None = None
        self.in_nodes: OrderedDict[str, str] = OrderedDict(in_nodes or ())
        self.out_nodes: OrderedDict[str, str] = OrderedDict(out_nodes or ())

    # What it is made of.

    def ops(self) -> list[OpWrapper]:
        """The ops of all blocks, in order."""
        return [OpWrapper(op, self) for block in self.program.blocks for op in block.ops]

    def vars(self) -> list[VarWrapper]:
        """The variables of all blocks."""
        return [VarWrapper(var, self) for var in self.program.list_vars()]

    def var(self, name: str) -> VarWrapper:
        """The variable ``name`` of the outermost block. Raises ValueError if there is none."""
        return VarWrapper(self.variable(name), self)

    def variable(self, name: str) -> Variable:
        """The same as a Variable of the program, for layers."""
        return self.program.global_block().var(name)

    def all_parameters(self) -> list[VarWrapper]:
        """The parameters of all blocks."""
        return [VarWrapper(param, self) for block in self.program.blocks for param in block.all_parameters()]

    def is_parameter(self, var: VarWrapper) -> bool:
        """Whether it is a parameter."""
        return isinstance(var._var, Parameter)

    def is_persistable(self, var: VarWrapper) -> bool:
        """Whether it is kept between runs."""
        return var._var.persistable

    def pre_ops(self, op: OpWrapper) -> list[OpWrapper]:
        """The ops that write what ``op`` reads, once for each such variable."""
        return [p for p in self.ops() for name in op.reads() if name in p.writes()]

    def next_ops(self, op: OpWrapper) -> list[OpWrapper]:
        """The ops that read what ``op`` writes, once for each such variable."""
        return [n for n in self.ops() for name in op.writes() if name in n.reads()]

    def get_param_by_op(self, op: OpWrapper) -> list[VarWrapper]:
        """The parameters that ``op`` reads. Raises AssertionError if there are none."""
        params = [var for var in op.all_inputs() if self.is_parameter(var)]
        assert params, explain(
            f"op {op.type()} has no parameter", "an op with weights", "one without", "pass another op"
        )
        return params

    def numel_params(self) -> int:
        """How many numbers the parameters have."""
        return sum(int(np.prod(param.shape())) for param in self.all_parameters())

    def flops(self, only_conv: bool = False) -> float:
        """The operations for one sample, counted as Paddle does (see ``flops``); of convolutions alone if asked."""
        return flops([op for block in self.program.blocks for op in block.ops], only_conv)

    # What becomes of it.

    def clone(self, for_test: bool = False) -> GraphWrapper:
        """A copy, with a copy of the program."""
        return GraphWrapper(self.program.clone(for_test), self.in_nodes, self.out_nodes)

    def merge(self, graph: GraphWrapper) -> None:
        """Append the ops and variables of another graph, a teacher's; equal names mean the same variable."""
        block = self.program.global_block()
        for var in graph.program.list_vars():
            if var.persistable:
                self.teacher_persistables[var.name] = var
            block._clone_variable(var, force_persistable=False).stop_gradient = var.stop_gradient
        for wrapped in graph.ops():
            op = wrapped._op
            inputs = {slot: [block.var(name) for name in op.input(slot)] for slot in op.input_names}
            outputs = {slot: [block.var(name) for name in op.output(slot)] for slot in op.output_names}
            block.append_op(op.type, inputs, outputs, {name: op.attr(name) for name in op.attr_names})

    def compile(self, for_parallel: bool = True, for_test: bool = False, mem_opt: bool = False) -> None:
        """Compile the program as it now is for the next runs; to be called after changes.

        Args:
            for_parallel: on all places of ``fluid.cpu_places()`` or ``cuda_places()``.
            for_test: without a loss.
            mem_opt: sets ``enable_inplace`` and ``memory_optimize``, which change nothing here.
        """
        self.compiled_graph = CompiledProgram(self.program)
        if for_parallel:
            strategy = BuildStrategy()
            strategy.enable_inplace = strategy.memory_optimize = mem_opt
            strategy.fuse_all_reduce_ops = False
            loss = None if for_test else self.out_nodes["loss"]
            self.compiled_graph = self.compiled_graph.with_data_parallel(loss_name=loss, build_strategy=strategy)

    def get_optimize_graph(
        self, optimizer: Any, place: Place, scope: Scope, no_grad_var_names: Iterable[str] = ()
    ) -> GraphWrapper | None:
        """A copy that trains: with gradients and updates of its "loss" or "cost"; None without either.

        Args:
            optimizer: its state is initialised in ``scope`` at ``place``.
            no_grad_var_names: variables that get no gradients.
        """
        graph = self.clone()
        loss = graph.out_nodes.get("loss", graph.out_nodes.get("cost"))
        if loss is None:
            return None
        graph.minimize(optimizer, loss, place, scope, no_grad_var_names)
        return graph

    def minimize(
        self, optimizer: Any, loss: str, place: Place, scope: Scope, no_grad_var_names: Iterable[str] = ()
    ) -> None:
        """Append gradients and updates that minimise the variable ``loss``; the optimizer's state is in ``scope``."""
        startup = Program()
        with program_guard(self.program, startup):
            rate = optimizer._learning_rate
            if isinstance(rate, Variable):  # of the program that this one was copied from
                optimizer._learning_rate_map[self.program] = rate
            optimizer.minimize(self.variable(loss), no_grad_set=set(no_grad_var_names))
        Executor(place).run(startup, scope=scope)

    # Shapes after pruning.

    def update_param_shape(self, scope: Scope) -> None:
        """Declare for each parameter the shape that it has in ``scope``."""
        for param in self.all_parameters():
            param.set_shape(tensor_of(scope, param.name()).shape())

    def infer_shape(self) -> None:
        """Declare the shapes of results anew, but those of conditional blocks."""
        for op in self.ops():
            if op.type() != "conditional_block":
                op._op.desc.infer_shape(op._op.block.desc)

    def update_groups_of_conv(self) -> None:
        """Give each depthwise convolution as many groups as its filter has rows."""
        for op in self.ops():
            if op.type() in ("depthwise_conv2d", "depthwise_conv2d_grad"):
                op.set_attr("groups", op.inputs("Filter")[0].shape()[0])

    # Files.

    def save_model(self, path: str, exe: Any) -> None:
        """Write ``__model__`` and ``__params__``: the program from ``in_nodes`` to ``out_nodes``.

        Args:
            exe: a SlimGraphExecutor.
        """
        self._save(path, exe, list(self.in_nodes.values()), self.out_nodes.values(), "__model__")

    def save_infer_model(
        self, path: str, exe: Any, in_out: Sequence[Sequence[str]], program_only: bool = False
    ) -> None:
        """Write ``__model__.infer``, and ``__params__`` unless ``program_only``: the program between named variables.

        Args:
            exe: a SlimGraphExecutor.
            in_out: (names of inputs, names of outputs).
        """
        self._save(path, exe, list(in_out[0]), in_out[1], "__model__.infer", program_only)

    def _save(
        self, path: str, exe: Any, feeds: list[str], fetches: Iterable[str], file: str, program_only: bool = False
    ) -> None:
        targets = [self.variable(name) for name in fetches]
        for nodes, kind in ((feeds, "inputs"), (targets, "outputs")):
            assert nodes, explain(f"a model without {kind}", "at least one", "none", "name them for the graph")
        io.save_inference_model(
            path,
            feeds,
            targets,
            exe.exe,
            main_program=self.program.clone(),
            model_filename=file,
            params_filename="__params__",
            program_only=program_only,
        )

    def save_persistables(self, path: str, exe: Any) -> None:
        """Write each persistable variable but a teacher's into a file of its name in the folder ``path``."""
        for var in self.program.list_vars():
            if var.persistable:
                self.persistables.setdefault(var.name, var)
        kept = [v for name, v in self._weights() if name not in self.teacher_persistables]
        io.save_vars(exe.exe, path, vars=kept)

    def load_persistables(self, path: str, exe: Any) -> None:
        """Read each persistable variable that has a file in the folder ``path``.

        Its declared shape becomes the file's, which may be of a pruned network.
        """
        found = [v for name, v in self._weights() if os.path.exists(os.path.join(path, name))]
        for var in found:
            var.desc.set_shape(stored_shape(path, var.name))
        io.load_vars(exe.exe, path, vars=found)

    def _weights(self) -> list[tuple[str, Variable]]:
        return [(n, v) for n, v in self.persistables.items() if not any(word in n for word in _READERS)]
