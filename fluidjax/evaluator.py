"""Evaluators: metrics accumulated in variables of the program; superseded by ``fluid.metrics``."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from fluidjax import layers, unique_name
from fluidjax.execution.scopes.fetched import fetched
from fluidjax.framework import Program, Variable, program_guard
from fluidjax.layer_helper import LayerHelper
from fluidjax.metrics import DetectionMAP as _DetectionMAP

__all__ = ["ChunkEvaluator", "EditDistance", "DetectionMAP"]


def _mirror(block: Any, var: Variable) -> Variable:
    """Declare a variable of the same name in another program."""
    return block.create_var(name=var.name, shape=var.shape, dtype=var.dtype, lod_level=var.lod_level, persistable=True)


def _require_root_block(helper: LayerHelper) -> None:
    if helper.main_program.current_block().idx != 0:
        raise ValueError("You can only invoke Evaluator in root block. Build it outside of while, cond and RNN blocks.")


class Evaluator:
    """Base class of evaluators.

    Attributes:
        states: variables updated by each run.
        metrics: variables with the results of the last batch, to fetch.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        warnings.warn(
            f"The {type(self).__name__} is deprecated, because maintain a modified program inside evaluator cause bug"
            f" easily, please use fluid.metrics.{type(self).__name__} instead.",
            Warning,
            stacklevel=3,
        )
        self.states: list[Variable] = []
        self.metrics: list[Variable] = []
        self.helper = LayerHelper(name, **kwargs)

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Reset the states to zero by running a program."""
        program = Program() if reset_program is None else reset_program
        with program_guard(main_program=program):
            for var in self.states:
                state = _mirror(program.current_block(), var)
                layers.fill_constant(shape=state.shape, value=0.0, dtype=state.dtype, out=state)
        executor.run(program)

    def eval(self, executor: Any, eval_program: Program | None = None) -> Any:
        """The result over all batches since the last reset; implemented by subclasses."""
        raise TypeError(f"{type(self).__name__} has no eval. Subclasses of Evaluator define it.")

    def _create_state(self, suffix: str, dtype: str, shape: list[int]) -> Variable:
        state = self.helper.create_variable(
            name="_".join([unique_name.generate(self.helper.name), suffix]),
            persistable=True,
            dtype=dtype,
            shape=shape,
        )
        self.states.append(state)
        return state

    def _accumulate(self, state: Variable, value: Variable) -> None:
        layers.sums(input=[state, value], out=state)

    def _fetch_states(self, executor: Any, program: Program, states: list[Variable]) -> list[Any]:
        block = program.current_block()
        return executor.run(program, fetch_list=[_mirror(block, state) for state in states])


class Accuracy(Evaluator):
    """Fraction of samples whose label is among the top k; superseded by ``fluid.metrics.Accuracy``.

    Args:
        input: scores or probabilities [N, C]; label: int64 [N, 1]; k: number of top predictions considered.
    """

    def __init__(self, input: Variable, label: Variable, k: int = 1, **kwargs: Any) -> None:
        super().__init__("accuracy", **kwargs)
        _require_root_block(self.helper)
        self.total = self._create_state(dtype="int64", shape=[1], suffix="total")
        self.correct = self._create_state(dtype="int64", shape=[1], suffix="correct")
        total, correct = (self.helper.create_variable_for_type_inference("int32") for _ in range(2))
        accuracy = layers.accuracy(input=input, label=label, k=k, total=total, correct=correct)
        self._accumulate(self.total, layers.cast(x=total, dtype="int64"))
        self._accumulate(self.correct, layers.cast(x=correct, dtype="int64"))
        self.metrics.append(accuracy)

    def eval(self, executor: Any, eval_program: Program | None = None) -> np.ndarray:
        """The accuracy, float32 [1]; 0 before any batch."""
        program = Program() if eval_program is None else eval_program
        total, correct = (v[0] for v in self._fetch_states(executor, program, [self.total, self.correct]))
        return fetched(np.array([correct / total if total else 0], "float32"))


class ChunkEvaluator(Evaluator):
    """Precision, recall and F1 score of chunks over all batches.

    Args:
        input, label: tags int64 [T, 1] with LoD.
        chunk_scheme: "IOB", "IOE", "IOBES" or "plain"; num_chunk_types: number of chunk types.
        excluded_chunk_types: chunk types to ignore.
    """

    def __init__(
        self,
        input: Variable,
        label: Variable,
        chunk_scheme: str,
        num_chunk_types: int,
        excluded_chunk_types: Any = None,
    ) -> None:
        super().__init__("chunk_eval")
        _require_root_block(self.helper)
        self.num_infer_chunks = self._create_state(dtype="int64", shape=[1], suffix="num_infer_chunks")
        self.num_label_chunks = self._create_state(dtype="int64", shape=[1], suffix="num_label_chunks")
        self.num_correct_chunks = self._create_state(dtype="int64", shape=[1], suffix="num_correct_chunks")
        precision, recall, f1, infer, truth, correct = layers.chunk_eval(
            input=input,
            label=label,
            chunk_scheme=chunk_scheme,
            num_chunk_types=num_chunk_types,
            excluded_chunk_types=excluded_chunk_types,
        )
        self._accumulate(self.num_infer_chunks, infer)
        self._accumulate(self.num_label_chunks, truth)
        self._accumulate(self.num_correct_chunks, correct)
        self.metrics.extend([precision, recall, f1])

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(precision, recall, F1), float32 [1] each."""
        program = Program() if eval_program is None else eval_program
        states = [self.num_infer_chunks, self.num_label_chunks, self.num_correct_chunks]
        infer, truth, correct = (v[0] for v in self._fetch_states(executor, program, states))
        precision = float(correct) / infer if infer else 0
        recall = float(correct) / truth if truth else 0
        f1 = float(2 * precision * recall) / (precision + recall) if correct else 0
        return tuple(fetched(np.array([v], "float32")) for v in (precision, recall, f1))  # type: ignore[return-value]


class EditDistance(Evaluator):
    """Mean edit distance, and fraction of sequences with errors, over all batches.

    Args:
        input, label: tokens int64 [T, 1] with LoD.
        ignored_tokens: tokens to remove first.
    """

    def __init__(self, input: Variable, label: Variable, ignored_tokens: Any = None, **kwargs: Any) -> None:
        super().__init__("edit_distance", **kwargs)
        _require_root_block(self.helper)
        self.total_distance = self._create_state(dtype="float32", shape=[1], suffix="total_distance")
        self.seq_num = self._create_state(dtype="int64", shape=[1], suffix="seq_num")
        self.instance_error = self._create_state(dtype="int64", shape=[1], suffix="instance_error")
        distances, seq_num = layers.edit_distance(input=input, label=label, ignored_tokens=ignored_tokens)
        zero = layers.fill_constant(shape=[1], value=0.0, dtype="float32")
        right = layers.reduce_sum(layers.cast(x=layers.equal(distances, zero), dtype="int64"))
        wrong = layers.elementwise_sub(x=seq_num, y=right)
        total = layers.reduce_sum(distances)
        self._accumulate(self.total_distance, total)
        self._accumulate(self.seq_num, seq_num)
        self._accumulate(self.instance_error, wrong)
        self.metrics.append(total)
        self.metrics.append(wrong)

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(mean distance, fraction of sequences with a nonzero distance), float32 [1] each."""
        program = Program() if eval_program is None else eval_program
        with program_guard(main_program=program):
            block = program.current_block()
            total, count, wrong = (_mirror(block, v) for v in (self.total_distance, self.seq_num, self.instance_error))
            count = layers.cast(x=count, dtype="float32")
            wrong = layers.cast(x=wrong, dtype="float32")
            mean = layers.elementwise_div(x=total, y=count)
            share = layers.elementwise_div(x=wrong, y=count)
            results = executor.run(program, fetch_list=[mean, share])
        return results[0], results[1]


class DetectionMAP(Evaluator):
    """Mean average precision (mAP) of detections; arguments as for ``fluid.metrics.DetectionMAP``."""

    def __init__(
        self,
        input: Variable,
        gt_label: Variable,
        gt_box: Variable,
        gt_difficult: Variable | None = None,
        class_num: int | None = None,
        background_label: int = 0,
        overlap_threshold: float = 0.5,
        evaluate_difficult: bool = True,
        ap_version: str = "integral",
    ) -> None:
        super().__init__("map_eval")
        self._inner = _DetectionMAP(
            input,
            gt_label,
            gt_box,
            gt_difficult,
            class_num,
            background_label,
            overlap_threshold,
            evaluate_difficult,
            ap_version,
        )
        self.cur_map, self.accum_map = self._inner.get_map_var()
        self.metrics.append(self.cur_map)
        self.states.append(self._inner.has_state)

    def get_map_var(self) -> tuple[Variable, Variable]:
        """(the variable with the mAP of the batch, the one over all batches)."""
        return self.cur_map, self.accum_map

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Discard the results of earlier batches."""
        self._inner.reset(executor, reset_program)
