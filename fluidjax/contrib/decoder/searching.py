"""A decoder that uses beam search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fluidjax import layers, unique_name
from fluidjax.base.enums import VarType
from fluidjax.contrib.decoder.state import InitState, StateCell
from fluidjax.framework import Block, Variable
from fluidjax.layer_helper import LayerHelper

__all__ = ["BeamSearchDecoder"]

# Fluid's decode() ends the branches of its beams at this id, whatever ``end_id`` is.
_SEARCH_END_ID = 1


class _Array:
    """A state stored in a tensor array, with its own counter, created before the loop."""

    def __init__(self, outside: Block, state: InitState) -> None:
        self._counter = outside.create_var(
            name=unique_name.generate("array_state_counter"), dtype="int64", shape=[1], stop_gradient=True
        )
        outside.append_op(
            type="fill_constant",
            outputs={"Out": self._counter},
            attrs={"shape": [1], "dtype": VarType.INT64, "value": 0.0, "force_cpu": True},
        )
        self._array = _array(outside, "array_state_array", state.value, self._counter)

    def get(self) -> Variable:
        return layers.array_read(array=self._array, i=self._counter)

    def update(self, value: Variable) -> None:
        layers.increment(x=self._counter, value=1, in_place=True)
        layers.array_write(x=value, i=self._counter, array=self._array)


def _array(block: Block, prefix: str, first: Variable, index: Variable) -> Variable:
    """A tensor array that starts with ``first``."""
    array = block.create_var(name=unique_name.generate(prefix), type=VarType.LOD_TENSOR_ARRAY, dtype=first.dtype)
    block.append_op(type="write_to_array", inputs={"X": first, "I": index}, outputs={"Out": array})
    return array


class BeamSearchDecoder:
    """Decodes by beam search, one word per step, using the step of a StateCell.

    ``decode`` writes a standard step: embed the last words, compute the states, and select among the ``topk_size`` best
    words given by an fc with softmax. A custom step can be written in ``block`` with ``read_array`` and
    ``update_array``. Calling the decoder afterwards returns (ids, scores) of ``layers.beam_search_decode``.

    Args:
        state_cell: defines the step.
        init_ids: int64 [sources, 1] with two LoD levels: the start words.
        init_scores: float32, with the same shape and LoD.
        target_dict_dim: size of the vocabulary.
        word_dim: width of the embeddings.
        input_var_dict: inputs of the cell that stay constant, by name; all others receive the embedded words.
        topk_size: number of words considered for each branch.
        sparse_emb: give the embedding table a sparse gradient.
        max_len: maximum number of steps.
        beam_size: number of branches per source.
        end_id: the end word at which ``beam_search_decode`` truncates sentences. As in Paddle 1.8.5, the search
            written by ``decode`` always ends branches at id 1.
        name: prefix for variable names.
    """

    BEFORE_BEAM_SEARCH_DECODER = 0
    IN_BEAM_SEARCH_DECODER = 1
    AFTER_BEAM_SEARCH_DECODER = 2

    def __init__(
        self,
        state_cell: StateCell,
        init_ids: Variable,
        init_scores: Variable,
        target_dict_dim: int,
        word_dim: int,
        input_var_dict: Mapping[str, Variable] = {},  # noqa: B006
        topk_size: int = 50,
        sparse_emb: bool = True,
        max_len: int = 100,
        beam_size: int = 1,
        end_id: int = 1,
        name: str | None = None,
    ) -> None:
        self._helper = LayerHelper("beam_search_decoder", name=name)
        self._counter = layers.zeros(shape=[1], dtype="int64")
        self._counter.stop_gradient = True
        self._max_len = layers.fill_constant(shape=[1], dtype="int64", value=max_len)
        limit = layers.fill_constant(shape=[1], dtype="int64", value=max_len)
        self._cond = layers.less_than(x=self._counter, y=limit)
        self._while_op = layers.While(self._cond)
        self._state_cell = state_cell
        state_cell._enter_decoder(self)
        self._status = BeamSearchDecoder.BEFORE_BEAM_SEARCH_DECODER
        self._zero = layers.fill_constant(shape=[1], value=0, dtype="int64", force_cpu=True)
        self._arrays: dict[str, Variable] = {}
        self._updates: list[tuple[Variable, Variable]] = []
        self._ids: Variable | None = None
        self._scores: Variable | None = None
        self._init_ids, self._init_scores = init_ids, init_scores
        self._vocabulary, self._width, self._sparse = target_dict_dim, word_dim, sparse_emb
        self._constant_inputs = input_var_dict
        self._topk, self._beam_size, self._end_id = topk_size, beam_size, end_id

    def _hold(self, state: InitState) -> _Array:
        return _Array(self._outside(), state)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Context manager; layers written inside it make up one step. May be used once.

        On exit, the step counter is incremented and the arrays of ``update_array`` are written, unless stopped early.
        """
        if self._status != BeamSearchDecoder.BEFORE_BEAM_SEARCH_DECODER:
            raise ValueError("BeamSearchDecoder.block() or decode() was called before. Make another decoder.")
        self._status = BeamSearchDecoder.IN_BEAM_SEARCH_DECODER
        with self._while_op.block():
            yield
            with layers.Switch() as switch, switch.case(self._cond):
                layers.increment(x=self._counter, value=1.0, in_place=True)
                for value, array in self._updates:
                    layers.array_write(x=value, i=self._counter, array=array)
                layers.less_than(x=self._counter, y=self._max_len, cond=self._cond)
        self._status = BeamSearchDecoder.AFTER_BEAM_SEARCH_DECODER
        self._state_cell._leave_decoder(self)

    @property
    def type(self) -> int:
        """1, the type code of beam search decoders."""
        return 1

    @property
    def state_cell(self) -> StateCell:
        """The cell, inside the block."""
        self._require_in_block("state_cell")
        return self._state_cell

    def early_stop(self) -> None:
        """Make this step the last; its arrays are not written."""
        layers.fill_constant(shape=[1], value=0, dtype="bool", force_cpu=True, out=self._cond)

    def decode(self) -> None:
        """Write the standard step.

        Raises:
            ValueError: ``input_var_dict`` names an input that the cell does not have.
        """
        with self.block():
            ids = self.read_array(init=self._init_ids, is_ids=True)
            scores = self.read_array(init=self._init_scores, is_scores=True)
            size = [self._vocabulary, self._width]
            words = layers.embedding(input=ids, size=size, dtype="float32", is_sparse=self._sparse)
            kept = self._constants(scores)
            cell = self._state_cell
            for name in cell._first:
                cell.set_state(name, layers.sequence_expand(cell.get_state(name), scores))
            inputs = {name: value for name, (_, value) in kept.items()}
            cell.compute_state(inputs=inputs | {name: words for name in cell._inputs if name not in inputs})
            chosen_ids, chosen_scores = self._search(ids, scores)
            with layers.Switch() as switch:
                with switch.case(layers.is_empty(chosen_ids)):
                    self.early_stop()
                with switch.default():
                    cell.update_states()
                    self.update_array(ids, chosen_ids)
                    self.update_array(scores, chosen_scores)
                    for read, value in kept.values():
                        self.update_array(read, value)

    def _constants(self, scores: Variable) -> dict[str, tuple[Variable, Variable]]:
        """(the value read, expanded to one row per branch) for each constant input."""
        found = {}
        for name, init in self._constant_inputs.items():
            if name not in self._state_cell._inputs:
                raise ValueError(
                    f"BeamSearchDecoder: input_var_dict has {name!r}, but the StateCell's inputs are"
                    f" {list(self._state_cell._inputs)}. Name it there."
                )
            read = self.read_array(init=init)
            found[name] = read, layers.sequence_expand(read, scores)
        return found

    def _search(self, ids: Variable, scores: Variable) -> tuple[Variable, Variable]:
        state = layers.lod_reset(x=self._state_cell.out_state(), y=scores)
        probabilities = layers.fc(input=state, size=self._vocabulary, act="softmax")
        best, words = layers.topk(probabilities, k=self._topk)
        total = layers.elementwise_add(x=layers.log(x=best), y=layers.reshape(scores, shape=[-1]), axis=0)
        found = layers.beam_search(ids, scores, words, total, self._beam_size, end_id=_SEARCH_END_ID, level=0)
        return found[0], found[1]

    def read_array(self, init: Variable, is_ids: bool = False, is_scores: bool = False) -> Variable:
        """The value at this step of a variable carried from step to step by ``update_array``.

        Args:
            init: its initial value.
            is_ids, is_scores: it holds the selected words, or their scores.

        Raises:
            ValueError: both flags are set, or it is called outside the block.
            TypeError: ``init`` is not a Variable.
        """
        self._require_in_block("read_array")
        if is_ids and is_scores:
            raise ValueError("BeamSearchDecoder.read_array: an array holds ids or scores, not both. Drop one mark.")
        _require_variable(init, "init", "read_array")
        array = _array(self._outside(), "beam_search_decoder_array", init, self._zero)
        if is_ids:
            self._ids = array
        elif is_scores:
            self._scores = array
        value = layers.array_read(array=array, i=self._counter)
        self._arrays[value.name] = array
        return value

    def update_array(self, array: Variable, value: Variable) -> None:
        """Make ``value`` what the next step reads from ``array``.

        Args:
            array: a result of ``read_array``.

        Raises:
            ValueError: ``array`` was not read, or it is called outside the block.
            TypeError: an argument is not a Variable.
        """
        self._require_in_block("update_array")
        _require_variable(array, "array", "update_array")
        _require_variable(value, "value", "update_array")
        if array.name not in self._arrays:
            raise ValueError(
                f"BeamSearchDecoder.update_array: {array.name!r} was not read. Pass what read_array returned."
            )
        self._updates.append((value, self._arrays[array.name]))

    def __call__(self) -> tuple[Variable, Variable]:
        """(ids, scores) of the sentences found, each with two LoD levels: sources and their sentences.

        Raises:
            ValueError: called before the end of the block, or no ids and scores were read in it.
        """
        if self._status != BeamSearchDecoder.AFTER_BEAM_SEARCH_DECODER:
            raise ValueError("BeamSearchDecoder has no output before its block is closed. Call decode() first.")
        if self._ids is None or self._scores is None:
            raise ValueError(
                "BeamSearchDecoder has no arrays of ids and scores. Read them with read_array(..., is_ids=True) and"
                " read_array(..., is_scores=True) in the block."
            )
        return layers.beam_search_decode(
            ids=self._ids, scores=self._scores, beam_size=self._beam_size, end_id=self._end_id
        )

    def _outside(self) -> Block:
        program = self._helper.main_program
        parent = program.current_block().parent_idx
        if parent < 0:
            raise ValueError("BeamSearchDecoder was used outside its loop. Use it in `with decoder.block():`.")
        return program.block(parent)

    def _require_in_block(self, method: str) -> None:
        if self._status != BeamSearchDecoder.IN_BEAM_SEARCH_DECODER:
            raise ValueError(
                f"BeamSearchDecoder.{method} was used outside the block. Use it in `with decoder.block():`."
            )


def _require_variable(value: object, what: str, method: str) -> None:
    if not isinstance(value, Variable):
        raise TypeError(
            f"BeamSearchDecoder.{method}: {what} must be a Variable, received {type(value).__name__}. Pass what a layer"
            " returned."
        )
