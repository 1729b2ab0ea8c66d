"""StaticRNN: a block run for each slice of its inputs along the first axis."""

from __future__ import annotations

from collections.abc import Sequence

from fluidjax import unique_name
from fluidjax.base.enums import VarType
from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Block, Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._control_flow.blocks import BlockGuardWithCompletion, known_to
from fluidjax.layers._control_flow.checks import require_variable

__all__ = ["StaticRNN"]


class StaticRNNMemoryLink:
    """The variables of one memory: its initial value, its value at the previous step and its value at this step."""

    def __init__(self, init: Variable, pre_mem: Variable, mem: Variable | None = None):
        self.init = init
        self.pre_mem = pre_mem
        self.mem = mem


class StaticRNN:
    """A recurrent network over inputs [steps, batch, ...] with a fixed number of steps.

    ::

        rnn = layers.StaticRNN()
        with rnn.step():
            word = rnn.step_input(x)
            before = rnn.memory(shape=[-1, 200], batch_ref=word)
            hidden = layers.fc(input=[word, before], size=200, act="relu")
            rnn.update_memory(before, hidden)
            rnn.step_output(hidden)
        out = rnn()

    Args:
        name: prefix for the names of the variables created.
    """

    BEFORE_RNN_BLOCK = 0
    IN_RNN_BLOCK = 1
    AFTER_RNN_BLOCK = 2

    def __init__(self, name: str | None = None):
        self.helper = LayerHelper("static_rnn", name=name)
        self.memories: dict[str, StaticRNNMemoryLink] = {}
        self.inputs: list[Variable] = []
        self.outputs: list[Variable] = []
        self.status = StaticRNN.BEFORE_RNN_BLOCK
        self.seq_len: int | None = None

    def step(self) -> BlockGuardWithCompletion:
        """Context manager; layers written inside it make up one step."""
        return BlockGuardWithCompletion(self)

    def _require_in_block(self, method: str) -> None:
        if self.status != StaticRNN.IN_RNN_BLOCK:
            raise ArgumentError(f"StaticRNN.{method} was called outside the step. You must invoke it in rnn.step().")

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """A state carried from step to step.

        Args:
            init: the initial state; if None, it is filled instead, using
            shape: its shape, with -1 for the batch size,
            batch_ref: the Variable from which the batch size is taken,
            init_value: the fill value,
            init_batch_dim_idx, ref_batch_dim_idx: the batch dimension in ``shape`` and in ``batch_ref`` (for a step
                input, dimension 1 of the whole input).

        Returns:
            The state at the previous step.

        Raises:
            ValueError: outside the step, or neither init nor both shape and batch_ref are given.
        """
        self._require_in_block("memory")
        if init is None:
            if shape is None or batch_ref is None:
                raise ArgumentError(
                    "StaticRNN.memory: if init is None, memory at least need shape and batch_ref; pass both, or init."
                )
            init = self._boot(shape, batch_ref, init_value, init_batch_dim_idx, ref_batch_dim_idx)
        require_variable(init, "init", "StaticRNN.memory")
        name = unique_name.generate("@".join([self.helper.name, "mem"]))
        pre_mem = self.helper.create_variable(name=name, dtype=init.dtype, shape=init.shape)
        self.memories[pre_mem.name] = StaticRNNMemoryLink(init=init, pre_mem=pre_mem)
        return pre_mem

    def _boot(self, shape: Sequence[int], batch_ref: Variable, value: float, out_dim: int, ref_dim: int) -> Variable:
        parent = self._parent_block()
        name = unique_name.generate("@".join([self.helper.name, "memory_boot"]))
        boot = parent.create_var(name=name, shape=list(shape), dtype=batch_ref.dtype, persistable=False)
        parent.append_op(
            type="fill_constant_batch_size_like",
            inputs={"Input": [batch_ref]},
            outputs={"Out": [boot]},
            attrs={
                "value": float(value),
                "shape": list(boot.shape),
                "dtype": boot.dtype,
                "input_dim_idx": ref_dim,
                "output_dim_idx": out_dim,
            },
        )
        return boot

    def step_input(self, x: Variable) -> Variable:
        """The slice of x [steps, ...] at the current step.

        Raises:
            ValueError: outside the step, or the number of steps differs from that of earlier inputs.
        """
        self._require_in_block("step_input")
        require_variable(x, "x", "StaticRNN.step_input")
        if self.seq_len is None:
            self.seq_len = x.shape[0]
        elif x.shape[0] != -1 and self.seq_len != x.shape[0]:
            raise ArgumentError(
                f"StaticRNN.step_input: {x.name} has another number of steps. Static RNN only take fix seq_len "
                f"input: expected {self.seq_len}, received {x.shape[0]}. Give every input the same first dim."
            )
        row = self.helper.create_variable(name=x.name, dtype=x.dtype, shape=list(x.shape[1:]), type=x.type)
        self.inputs.append(row)
        return row

    def step_output(self, o: Variable) -> None:
        """Add o to the outputs of the network, stacked over the steps."""
        self._require_in_block("step_output")
        require_variable(o, "o", "StaticRNN.step_output")
        row = self.helper.create_variable_for_type_inference(dtype=o.dtype)
        self.helper.append_op(
            type="rnn_memory_helper", inputs={"X": [o]}, outputs={"Out": row}, attrs={"dtype": o.dtype}
        )
        whole = self._parent_block().create_var(name=row.name, shape=[self.seq_len, *row.shape], dtype=row.dtype)
        self.outputs.append(whole)

    def output(self, *outputs: Variable) -> None:
        """Call `step_output` on each argument."""
        for each in outputs:
            self.step_output(each)

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """Set the value of the memory ``mem`` for the next step to ``var``.

        Raises:
            TypeError: mem or var is not a Variable.
        """
        require_variable(mem, "mem", "StaticRNN.update_memory")
        require_variable(var, "var", "StaticRNN.update_memory")
        self.memories[mem.name].mem = var

    def _parent_block(self) -> Block:
        program = self.helper.main_program
        return program.block(program.current_block().parent_idx)

    def __call__(self, *args, **kwargs) -> Variable | list[Variable]:
        """The outputs, [steps, batch, ...]; a single output is returned on its own.

        Raises:
            ValueError: called before the step is written, or there are no outputs.
        """
        if self.status != StaticRNN.AFTER_RNN_BLOCK:
            raise ArgumentError(
                "RNN output can only be retrieved after rnn block. Call rnn() after `with rnn.step():`."
            )
        if not self.outputs:
            raise ArgumentError("RNN has no output. Call rnn.step_output or rnn.output inside the step.")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def _parameters(self, block: Block, parent: Block) -> list[Variable]:
        """Outer variables read by the step, other than inputs and memories."""
        own = {name for op in block.ops for name in op.output_arg_names}
        own |= set(self.memories) | {var.name for var in self.inputs}
        reads = dict.fromkeys(name for op in block.ops for name in op.input_arg_names if name not in own)
        return known_to(parent, list(reads))

    def _links(self, block: Block) -> tuple[list[Variable], list[str], list[str]]:
        """(initial values, names at the previous step, names at this step) of the memories."""
        initial, before, after = [], [], []
        for link in self.memories.values():
            if link.mem is None:
                raise ArgumentError(
                    f"StaticRNN: memory {link.pre_mem.name} is never updated. mem_var must be set: call "
                    "rnn.update_memory(memory, new_value) inside the step."
                )
            state = self.helper.create_variable_for_type_inference(dtype=link.mem.dtype)
            block.append_op(
                type="rnn_memory_helper",
                inputs={"X": [link.mem]},
                outputs={"Out": [state]},
                attrs={"dtype": link.mem.dtype},
            )
            initial.append(link.init)
            before.append(link.pre_mem.name)
            after.append(state.name)
        return initial, before, after

    def _complete_op(self) -> None:
        block = self.helper.main_program.current_block()
        parent = self._parent_block()
        parameters = self._parameters(block, parent)
        scopes = parent.create_var(type=VarType.STEP_SCOPES)
        initial, before, after = self._links(block)
        parent.append_op(
            type="recurrent",
            inputs={
                "inputs": [parent.var(var.name) for var in self.inputs],
                "initial_states": initial,
                "parameters": parameters,
            },
            outputs={"outputs": self.outputs, "step_scopes": [scopes]},
            attrs={
                "has_states": len(before) > 0,
                "ex_states": before,
                "states": after,
                "sub_block": block,
            },
        )
