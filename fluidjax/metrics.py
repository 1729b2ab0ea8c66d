"""Metrics computed in Python: updated with fetched values batch by batch, then evaluated over the whole pass."""

from __future__ import annotations

import copy
from typing import Any, NoReturn

import numpy as np

from fluidjax import layers, unique_name
from fluidjax.base.unknown import unknown_name
from fluidjax.framework import Program, program_guard
from fluidjax.initializer import Constant
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._detection.map import detection_map

__all__ = [
    "MetricBase",
    "CompositeMetric",
    "Precision",
    "Recall",
    "Accuracy",
    "ChunkEvaluator",
    "EditDistance",
    "DetectionMAP",
    "Auc",
]


def _array(value: Any, name: str) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise ValueError(
            f"The '{name}' must be a numpy ndarray, received {type(value).__name__}. Fetch it with return_numpy=True."
        )
    return value


def _is_numpy_(var: Any) -> bool:
    return isinstance(var, (np.ndarray, np.generic))


def _is_number_(var: Any) -> bool:
    return isinstance(var, (int, float, np.int64)) or (isinstance(var, np.ndarray) and var.shape == (1,))


def _is_number_or_matrix_(var: Any) -> bool:
    return _is_number_(var) or isinstance(var, np.ndarray)


def _number_or_array(value: Any, name: str, kinds: str = "int, float") -> Any:
    if not _is_number_or_matrix_(value):
        raise ValueError(
            f"The '{name}' must be a number({kinds}) or a numpy ndarray, received {type(value).__name__}. Convert it."
        )
    return value


def _zero(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return type(value)(0)
    if isinstance(value, (np.ndarray, np.generic)):
        return np.zeros_like(value)
    return None


class MetricBase:
    """Base class of metrics; attributes whose names do not begin with ``_`` are its state."""

    def __init__(self, name: str | None) -> None:
        self._name = str(name) if name is not None else type(self).__name__

    def __str__(self) -> str:
        return self._name

    def _states(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if not key.startswith("_")}

    def reset(self) -> None:
        """Reset the state: numbers and arrays to zero, everything else to None."""
        for key, value in self._states().items():
            setattr(self, key, _zero(value))

    def get_config(self) -> dict[str, Any]:
        """{"name": ..., "states": a copy of the states}."""
        return {"name": self._name, "states": copy.deepcopy(self._states())}

    def _abstract(self, method: str) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} has no {method}: Should not use it directly, please extend it. Subclasses of"
            f" MetricBase define {method}."
        )

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch; implemented by subclasses."""
        self._abstract("update")

    def eval(self) -> Any:
        """The result so far; implemented by subclasses."""
        self._abstract("eval")


class CompositeMetric(MetricBase):
    """Several metrics on the same predictions and labels."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._metrics: list[MetricBase] = []

    def add_metric(self, metric: MetricBase) -> None:
        """Add a metric. Raises ValueError unless it is a MetricBase."""
        if not isinstance(metric, MetricBase):
            raise ValueError(f"SubMetric should be inherit from MetricBase, received {metric!r}. Pass a metric.")
        self._metrics.append(metric)

    def update(self, preds: Any, labels: Any) -> None:
        """Update every metric with the batch."""
        for metric in self._metrics:
            metric.update(preds, labels)

    def eval(self) -> list[Any]:
        """The metrics' results, in the order added."""
        return [metric.eval() for metric in self._metrics]


def _binary(preds: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """(predictions rounded to int, labels), flattened to equal length."""
    preds, labels = _array(preds, "preds"), _array(labels, "labels")
    count = labels.shape[0]
    return np.rint(preds).astype(np.int32).reshape(len(preds), -1)[:count, 0], labels.reshape(count, -1)[:, 0]


class Precision(MetricBase):
    """Precision of binary predictions: tp / (tp + fp)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = 0
        self.fp = 0

    def update(self, preds: np.ndarray, labels: np.ndarray) -> None:
        """Add probabilities [N, 1] and 0/1 labels [N, 1]. Raises ValueError unless both are arrays."""
        found, truth = _binary(preds, labels)
        self.tp += int(np.sum((found == 1) & (truth == 1)))
        self.fp += int(np.sum((found == 1) & (truth != 1)))

    def eval(self) -> float:
        """The precision; 0.0 without positive predictions."""
        taken = self.tp + self.fp
        return float(self.tp) / taken if taken else 0.0


class Recall(MetricBase):
    """Recall of binary predictions: tp / (tp + fn)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = 0
        self.fn = 0

    def update(self, preds: np.ndarray, labels: np.ndarray) -> None:
        """Add probabilities [N, 1] and 0/1 labels [N, 1]. Raises ValueError unless both are arrays."""
        found, truth = _binary(preds, labels)
        self.tp += int(np.sum((truth == 1) & (found == 1)))
        self.fn += int(np.sum((truth == 1) & (found != 1)))

    def eval(self) -> float:
        """The recall; 0.0 without positive labels."""
        positives = self.tp + self.fn
        return float(self.tp) / positives if positives else 0.0


class Accuracy(MetricBase):
    """The weighted mean of per-batch accuracies."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.value: Any = 0.0
        self.weight: Any = 0.0

    def update(self, value: Any, weight: Any) -> None:
        """Add a batch's accuracy with its weight, usually its size. Raises ValueError for other types or weight < 0."""
        _number_or_array(value, "value")
        if not _is_number_(weight):
            raise ValueError(f"The 'weight' must be a number(int, float), received {weight!r}. Convert it.")
        if weight < 0:
            raise ValueError(f"The 'weight' can not be negative, received {weight}. Pass the batch size.")
        self.value += value * weight
        self.weight += weight

    def eval(self) -> Any:
        """The mean. Raises ValueError before any update."""
        if self.weight == 0:
            raise ValueError(
                "There is no data in Accuracy Metrics: its weights sum to 0. Please check layers.accuracy output has"
                " added to Accuracy."
            )
        return self.value / self.weight


class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 score of chunks, from the counts of ``layers.chunk_eval``."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.num_infer_chunks: Any = 0
        self.num_label_chunks: Any = 0
        self.num_correct_chunks: Any = 0

    def update(  # type: ignore[override]
        self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any
    ) -> None:
        """Add the counts of a batch, as numbers or arrays. Raises ValueError for other types."""
        self.num_infer_chunks += _number_or_array(num_infer_chunks, "num_infer_chunks", "int")
        self.num_label_chunks += _number_or_array(num_label_chunks, "num_label_chunks", "int")
        self.num_correct_chunks += _number_or_array(num_correct_chunks, "num_correct_chunks", "int")

    def eval(self) -> tuple[Any, Any, Any]:
        """(precision, recall, F1 score); 0 where nothing was counted."""
        right = self.num_correct_chunks
        precision = right / self.num_infer_chunks if self.num_infer_chunks else 0
        recall = right / self.num_label_chunks if self.num_label_chunks else 0
        f1 = 2 * precision * recall / (precision + recall) if right else 0
        return precision, recall, f1


class EditDistance(MetricBase):
    """Mean edit distance, and fraction of sequences with errors, from ``layers.edit_distance``."""

    def __init__(self, name: str | None) -> None:
        super().__init__(name)
        self.total_distance: Any = 0.0
        self.seq_num: Any = 0
        self.instance_error: Any = 0

    def update(self, distances: np.ndarray, seq_num: Any) -> None:
        """Add the distances [N, 1] of a batch and their number. Raises ValueError for other types."""
        _array(distances, "distances")
        if not _is_number_(seq_num):
            raise ValueError(f"The 'seq_num' must be a number(int, float), received {seq_num!r}. Convert it.")
        self.total_distance += float(np.sum(distances))
        self.seq_num += seq_num
        self.instance_error += seq_num - int(np.sum(distances == 0))

    def eval(self) -> tuple[Any, Any]:
        """(mean distance, fraction of sequences with a nonzero distance). Raises ValueError before any update."""
        if self.seq_num == 0:
            raise ValueError(
                "There is no data in EditDistance Metric: no sequence was counted. Please check layers.edit_distance"
                " output has been added to EditDistance."
            )
        return self.total_distance / self.seq_num, self.instance_error / self.seq_num


class Auc(MetricBase):
    """Area under the ROC curve, computed from histograms of the predictions."""

    def __init__(self, name: str | None, curve: str = "ROC", num_thresholds: int = 4095) -> None:
        super().__init__(name)
        self._curve = curve
        self._num_thresholds = num_thresholds
        self.reset()

    def reset(self) -> None:
        """Clear the histograms (Paddle's reset does not)."""
        self._stat_pos = np.zeros(self._num_thresholds + 1)
        self._stat_neg = np.zeros(self._num_thresholds + 1)

    def update(self, preds: np.ndarray, labels: np.ndarray) -> None:
        """Add predictions [N, 2], whose last column is the positive class, and 0/1 labels [N, 1]."""
        labels, preds = _array(labels, "labels"), _array(preds, "predictions")
        scores = preds.reshape(len(preds), -1)[: len(labels), 1]
        bins = (scores * self._num_thresholds).astype(np.int64)
        if len(bins) and (bins.max() > self._num_thresholds or bins.min() < 0):
            raise ValueError(
                f"predictions of Auc must lie in [0, 1], received {scores.min()} to {scores.max()}. Take the softmax."
            )
        positive = labels.reshape(len(labels), -1)[:, 0].astype(bool)
        self._stat_pos += np.bincount(bins[positive], minlength=self._num_thresholds + 1)
        self._stat_neg += np.bincount(bins[~positive], minlength=self._num_thresholds + 1)

    @staticmethod
    def trapezoid_area(x1: float, x2: float, y1: float, y2: float) -> float:
        """|x1 - x2| (y1 + y2) / 2."""
        return abs(x1 - x2) * (y1 + y2) / 2.0

    def eval(self) -> float:
        """The area; 0.0 until both classes have occurred."""
        pos, neg = np.cumsum(self._stat_pos[::-1]), np.cumsum(self._stat_neg[::-1])
        if not pos[-1] or not neg[-1]:
            return 0.0
        before_pos, before_neg = np.concatenate([[0.0], pos[:-1]]), np.concatenate([[0.0], neg[:-1]])
        area = np.sum(np.abs(neg - before_neg) * (pos + before_pos) / 2.0)
        return float(area / pos[-1] / neg[-1])


class DetectionMAP:
    """Mean average precision (mAP) of detections, computed in the program, for the batch and over all batches.

    Args:
        input: detections [M, 6] (label, score, box) with LoD; gt_label, gt_box, gt_difficult: ground truth, with LoD.
        class_num: number of classes; background_label: the class to ignore.
        overlap_threshold: minimum overlap of a true positive; evaluate_difficult: whether difficult objects count.
        ap_version: "integral" or "11point".
    """

    def __init__(
        self,
        input: Any,
        gt_label: Any,
        gt_box: Any,
        gt_difficult: Any = None,
        class_num: int | None = None,
        background_label: int = 0,
        overlap_threshold: float = 0.5,
        evaluate_difficult: bool = True,
        ap_version: str = "integral",
    ) -> None:
        self.helper = LayerHelper("map_eval")
        gt_label = layers.cast(x=gt_label, dtype=gt_box.dtype)
        parts = [gt_label, gt_box]
        if gt_difficult is not None:
            parts = [gt_label, layers.cast(x=gt_difficult, dtype=gt_box.dtype), gt_box]
        label = layers.concat(parts, axis=1)
        options: dict[str, Any] = {
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_version": ap_version,
        }
        batch = detection_map(input, label, class_num, background_label, **options)
        states = [
            self._state("int32", None, "accum_pos_count"),
            self._state("float32", None, "accum_true_pos"),
            self._state("float32", None, "accum_false_pos"),
        ]
        self.has_state = self._state("int32", [1], "has_state")
        self.helper.set_variable_initializer(self.has_state, initializer=Constant(value=0))
        total = detection_map(
            input,
            label,
            class_num,
            background_label,
            has_state=self.has_state,
            input_states=states,
            out_states=states,
            **options,
        )
        layers.fill_constant(shape=self.has_state.shape, value=1, dtype=self.has_state.dtype, out=self.has_state)
        self.cur_map = batch
        self.accum_map = total

    def _state(self, dtype: str, shape: list[int] | None, suffix: str) -> Any:
        name = "_".join([unique_name.generate(self.helper.name), suffix])
        return self.helper.create_variable(name=name, persistable=True, dtype=dtype, shape=shape)

    def get_map_var(self) -> tuple[Any, Any]:
        """(the variable with the mAP of the batch, the one over all batches)."""
        return self.cur_map, self.accum_map

    def reset(self, executor: Any, reset_program: Any = None) -> None:
        """Discard the results of earlier batches by running a program that clears the state."""
        program = Program() if reset_program is None else reset_program
        with program_guard(main_program=program):
            state = program.current_block().create_var(
                name=self.has_state.name,
                shape=self.has_state.shape,
                dtype=self.has_state.dtype,
                persistable=True,
            )
            layers.fill_constant(shape=state.shape, value=0, dtype=state.dtype, out=state)
        executor.run(program)


__getattr__ = unknown_name(__name__)
