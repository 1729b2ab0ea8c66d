"""DynamicRNN: a block run at each time step of variable-length sequences, using rank tables and tensor arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fluidjax import unique_name
from fluidjax.base.enums import VarType
from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Block, Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._control_flow.basic import array_read, array_write, increment, less_than
from fluidjax.layers._control_flow.blocks import While
from fluidjax.layers._control_flow.checks import require_variable
from fluidjax.layers._control_flow.ragged import array_to_lod_tensor, shrink_memory
from fluidjax.layers._tensor.shapes import fill_constant

__all__ = ["DynamicRNN"]


class DynamicRNN:
    """A recurrent network over variable-length sequences, sorted by decreasing length; finished sequences drop out.

    ::

        drnn = layers.DynamicRNN()
        with drnn.block():
            word = drnn.step_input(sentence)
            before = drnn.memory(shape=[200])
            hidden = layers.fc(input=[word, before], size=200, act="relu")
            drnn.update_memory(before, hidden)
            drnn.output(hidden)
        out = drnn()

    Args:
        name: prefix for the names of the variables created.
    """

    BEFORE_RNN = 0
    IN_RNN = 1
    AFTER_RNN = 2

    def __init__(self, name: str | None = None):
        self.helper = LayerHelper("dynamic_rnn", name=name)
        self.status = DynamicRNN.BEFORE_RNN
        self.lod_rank_table: Variable | None = None
        self.max_seq_len: Variable | None = None
        self.step_idx: Variable | None = None
        self.zero_idx: Variable | None = None
        self.mem_dict: dict[str, Variable] = {}
        self.output_array: list[Variable] = []
        self.outputs: list[Variable] = []
        self.cond = self.helper.create_variable_for_type_inference(dtype="bool")
        self.cond.stop_gradient = False
        self.while_op = While(self.cond)
        self.input_array: list[tuple[Variable, int]] = []
        self.mem_link: list[tuple[Variable, Variable]] = []

    def step_input(self, x: Variable, level: int = 0) -> Variable:
        """The rows of x at the current step: one for each sequence still active.

        Args:
            x: LoD Variable; the first step input determines the ranking of the sequences.
            level: the LoD level to step through.

        Raises:
            ValueError: called outside the block.
            TypeError: x is not a Variable.
        """
        self._require_in_block("step_input")
        require_variable(x, "x", "DynamicRNN.step_input")
        parent = self._parent_block()
        if self.lod_rank_table is None:
            self._rank(parent, x, level)
        array = parent.create_var(
            name=unique_name.generate("dynamic_rnn_input_array"), type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype
        )
        self.input_array.append((array, x.dtype))
        parent.append_op(
            type="lod_tensor_to_array",
            inputs={"X": x, "RankTable": self.lod_rank_table},
            outputs={"Out": array},
        )
        return array_read(array=array, i=self._step())

    def _rank(self, parent: Block, x: Variable, level: int) -> None:
        """Rank the sequences of x by length and test the step counter against the longest."""
        self.lod_rank_table = parent.create_var(
            name=unique_name.generate("lod_rank_table"), type=VarType.LOD_RANK_TABLE
        )
        self.lod_rank_table.stop_gradient = True
        parent.append_op(
            type="lod_rank_table",
            inputs={"X": x},
            outputs={"Out": self.lod_rank_table},
            attrs={"level": level},
        )
        self.max_seq_len = parent.create_var(name=unique_name.generate("dynamic_rnn_max_seq_len"), dtype="int64")
        self.max_seq_len.stop_gradient = False
        parent.append_op(
            type="max_sequence_len",
            inputs={"RankTable": self.lod_rank_table},
            outputs={"Out": self.max_seq_len},
        )
        self.cond.stop_gradient = True
        parent.append_op(
            type="less_than",
            inputs={"X": self.step_idx, "Y": self.max_seq_len},
            outputs={"Out": self.cond},
            attrs={"force_cpu": True},
        )

    def static_input(self, x: Variable) -> Variable:
        """All of x at every step, its sequences reordered and dropped along with those of the step inputs.

        Raises:
            ValueError: called outside the block.
            RuntimeError: called before any step_input.
            TypeError: x is not a Variable.
        """
        self._require_in_block("static_input")
        require_variable(x, "x", "DynamicRNN.static_input")
        if self.lod_rank_table is None:
            raise RuntimeError("DynamicRNN.static_input() must be called after step_input(), which ranks sequences.")
        reordered = self._reordered(x, "dynamic_rnn_static_input_reordered")
        return shrink_memory(reordered, self._step(), self._table())

    def _reordered(self, x: Variable, name: str) -> Variable:
        parent = self._parent_block()
        out = parent.create_var(name=unique_name.generate(name), type=VarType.LOD_TENSOR, dtype=x.dtype)
        parent.append_op(
            type="reorder_lod_tensor_by_rank",
            inputs={"X": [x], "RankTable": [self.lod_rank_table]},
            outputs={"Out": [out]},
        )
        return out

    @contextmanager
    def block(self) -> Iterator[None]:
        """Context manager; layers written inside it make up one time step.

        Raises:
            ValueError: entered a second time.
        """
        if self.status != DynamicRNN.BEFORE_RNN:
            raise ArgumentError(
                "A DynamicRNN has one block: rnn.block() can only be invoke once. Make another DynamicRNN."
            )
        self.step_idx = fill_constant(shape=[1], dtype="int64", value=0, force_cpu=True)
        self.step_idx.stop_gradient = False
        self.status = DynamicRNN.IN_RNN
        with self.while_op.block():
            yield
            increment(x=self.step_idx, value=1.0, in_place=True)
            for new_mem, array in self.mem_link:
                array_write(x=new_mem, i=self.step_idx, array=array)
            self._table()
            assert self.max_seq_len is not None
            less_than(x=self.step_idx, y=self.max_seq_len, force_cpu=True, cond=self.cond)
        self.status = DynamicRNN.AFTER_RNN
        for array in self.output_array:
            self.outputs.append(array_to_lod_tensor(x=array, table=self._table()))

    def __call__(self, *args, **kwargs) -> Variable | list[Variable]:
        """The outputs, with the LoD of the first step input; a single output is returned on its own.

        Raises:
            ValueError: called before the block is complete.
        """
        if self.status != DynamicRNN.AFTER_RNN:
            raise ArgumentError(
                "Output of the dynamic RNN can only be visited outside the rnn block. Call it after `with block():`."
            )
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        need_reorder: bool = False,
        dtype: str = "float32",
    ) -> Variable:
        """A state carried from step to step, with one row for each sequence still active.

        Args:
            init: the initial state; if None, it is filled instead, using
            shape: the shape of a row, and
            value, dtype: the fill value and its dtype.
            need_reorder: the rows of init are in batch order and must be sorted by rank.

        Returns:
            The state at the previous step.

        Raises:
            ValueError: outside the block, or before any step_input when the number of rows depends on one.
            TypeError: init is not a Variable, or shape is missing.
        """
        self._require_in_block("memory")
        self._init_zero_idx()
        if init is None:
            init = self._filled_memory(shape, value, dtype)
        elif require_variable(init, "init", "DynamicRNN.memory") is not None and need_reorder:
            if self.lod_rank_table is None:
                raise ArgumentError(
                    "If set need_reorder to True, make sure step_input be invoked before "
                    "memory(init=init, need_reordered=True, ...)."
                )
            init = self._reordered(init, "dynamic_rnn_mem_init_reordered")
        return self._memory_from(init)

    def _memory_from(self, init: Variable) -> Variable:
        parent = self._parent_block()
        array = parent.create_var(
            name=unique_name.generate("dynamic_rnn_mem_array"), type=VarType.LOD_TENSOR_ARRAY, dtype=init.dtype
        )
        parent.append_op(type="write_to_array", inputs={"X": init, "I": self.zero_idx}, outputs={"Out": array})
        before = array_read(array=array, i=self._step())
        before = shrink_memory(x=before, i=self._step(), table=self._table())
        self.mem_dict[before.name] = array
        return before

    def _filled_memory(self, shape: Sequence[int] | None, value: float, dtype: str) -> Variable:
        """A constant state with one row for each sequence of the first step input."""
        if not isinstance(shape, list | tuple):
            raise TypeError(
                f"DynamicRNN.memory: without init it needs the shape of a row. Expected a list or tuple, received "
                f"{type(shape).__name__}. Pass shape=[size], or init."
            )
        if not self.input_array:
            raise ArgumentError("step_input should be invoked before memory(shape=..., value=...): it sets the rows.")
        parent = self._parent_block()
        init = parent.create_var(name=unique_name.generate("mem_init"), dtype=dtype)
        array, array_dtype = self.input_array[0]
        first = parent.create_var(name=unique_name.generate("in0"), dtype=array_dtype)
        parent.append_op(type="read_from_array", inputs={"X": [array], "I": [self.zero_idx]}, outputs={"Out": [first]})
        parent.append_op(
            type="fill_constant_batch_size_like",
            inputs={"Input": [first]},
            outputs={"Out": [init]},
            attrs={"shape": [-1, *shape], "value": float(value), "dtype": init.dtype},
        )
        return init

    def update_memory(self, ex_mem: Variable, new_mem: Variable) -> None:
        """Set the value of the memory ``ex_mem`` for the next step to ``new_mem``.

        Raises:
            ValueError: outside the block, or ex_mem was not returned by memory().
            TypeError: an argument is not a Variable.
        """
        self._require_in_block("update_memory")
        require_variable(ex_mem, "ex_mem", "DynamicRNN.update_memory")
        require_variable(new_mem, "new_mem", "DynamicRNN.update_memory")
        array = self.mem_dict.get(ex_mem.name)
        if array is None:
            raise ArgumentError(
                f"DynamicRNN.update_memory: {ex_mem.name} is no memory of this network. Please invoke memory before "
                "update_memory, and pass what it returned."
            )
        self.mem_link.append((new_mem, array))

    def output(self, *outputs: Variable) -> None:
        """Declare the outputs of a step.

        Raises:
            ValueError: called outside the block.
        """
        self._require_in_block("output")
        parent = self._parent_block()
        for each in outputs:
            require_variable(each, "outputs", "DynamicRNN.output")
            name = unique_name.generate_with_ignorable_key("_".join([self.helper.name, "output_array", each.name]))
            array = parent.create_var(name=name, type=VarType.LOD_TENSOR_ARRAY, dtype=each.dtype)
            array_write(x=each, i=self._step(), array=array)
            self.output_array.append(array)

    def _init_zero_idx(self) -> None:
        if self.zero_idx is not None:
            return
        parent = self._parent_block()
        self.zero_idx = parent.create_var(name=unique_name.generate("zero_idx"), dtype="int64")
        parent.append_op(
            type="fill_constant",
            inputs={},
            outputs={"Out": [self.zero_idx]},
            attrs={"shape": [1], "dtype": self.zero_idx.dtype, "value": float(0), "force_cpu": True},
        )

    def _step(self) -> Variable:
        assert self.step_idx is not None, "the block sets the step"
        return self.step_idx

    def _table(self) -> Variable:
        if self.lod_rank_table is None:
            raise ArgumentError(
                "DynamicRNN: no sequences are known yet. step_input should be invoked before memory, and at least once."
            )
        return self.lod_rank_table

    def _parent_block(self) -> Block:
        program = self.helper.main_program
        parent_idx = program.current_block().parent_idx
        return program.block(parent_idx)

    def _require_in_block(self, method: str) -> None:
        if self.status != DynamicRNN.IN_RNN:
            raise ArgumentError(f"{method} can only be invoked inside rnn block. Call it in `with drnn.block():`.")
