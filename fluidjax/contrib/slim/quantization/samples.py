"""Quantization of a saved model calibrated on samples."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fluidjax import io
from fluidjax.base.scope import Scope, global_scope, scope_guard
from fluidjax.contrib.slim.quantization.freezing import QuantizationFreezePass
from fluidjax.contrib.slim.quantization.ops import SCALED, held, read_by, written_by
from fluidjax.contrib.slim.quantization.thresholds import kl_threshold
from fluidjax.contrib.slim.quantization.transform import QuantizationTransformPass, check_supported
from fluidjax.contrib.slim.quantization.without_weights import AddQuantDequantPass
from fluidjax.framework import Operator, Program
from fluidjax.ir.graph import Graph
from fluidjax.ir.ir_graph import IrGraph

_logger = logging.getLogger(__name__)
_MAJOR = QuantizationTransformPass._supported_quantizable_op_type
_MINOR = AddQuantDequantPass._supported_quantizable_op_type
_MARKS = {"KL": "post_kl", "abs_max": "post_abs_max", "min_max": "post_min_max"}


class PostTrainingQuantization:
    """Runs a float model on samples, and quantizes it based on the ranges of its values.

    Args:
        executor: used to load, run and save.
        scope: where to load the model; the global scope if None.
        model_dir, model_filename, params_filename: as for ``load_inference_model``.
        batch_generator, sample_generator: functions that return iterators over batches or samples.
        batch_size, batch_nums: number of samples per batch; number of batches to run, all if None.
        algo: "KL" (see ``kl_threshold``), "abs_max" or "min_max", which only records the ranges.
        quantizable_op_type, is_full_quantize: the op types to quantize, or all supported ones.
        activation_bits, weight_bits, activation_quantize_type, weight_quantize_type: as for
            ``QuantizationTransformPass``.
        is_use_cache_file, cache_dir: accepted for compatibility; only one variable at a time is held in memory.

    Raises AssertionError for missing arguments, and for unsupported types and ops.
    """

    def __init__(
        self,
        executor: Any = None,
        scope: Scope | None = None,
        model_dir: str | None = None,
        model_filename: str | None = None,
        params_filename: str | None = None,
        batch_generator: Callable[[], Iterable[Any]] | None = None,
        sample_generator: Callable[[], Iterable[Any]] | None = None,
        batch_size: int = 10,
        batch_nums: int | None = None,
        algo: str = "KL",
        quantizable_op_type: Sequence[str] = ["conv2d", "depthwise_conv2d", "mul"],  # noqa: B006  (Fluid's default)
        is_full_quantize: bool = False,
        activation_bits: int = 8,
        weight_bits: int = 8,
        activation_quantize_type: str = "range_abs_max",
        weight_quantize_type: str = "channel_wise_abs_max",
        is_use_cache_file: bool = False,
        cache_dir: str = "./temp_post_training",
    ):
        _need(executor is not None, "executor", "an Executor", executor)
        _need(model_dir is not None, "model_dir", "a folder", model_dir)
        _need(bool(sample_generator or batch_generator), "sample_generator or batch_generator", "a function", None)
        _need(batch_size > 0, "batch_size", "a number greater than 0", batch_size)
        _one_of("algo", algo, tuple(_MARKS))
        kinds = ("range_abs_max", "moving_average_abs_max", "abs_max")
        _one_of("activation_quantize_type", activation_quantize_type, kinds)
        _one_of("weight_quantize_type", weight_quantize_type, ("abs_max", "channel_wise_abs_max"))
        supported = list(dict.fromkeys([*_MAJOR, *_MINOR]))
        check_supported(quantizable_op_type, supported)
        self._executor, self._place = executor, executor.place
        self._scope = global_scope() if scope is None else scope
        self._model = (model_dir, executor, model_filename, params_filename)
        self._samples, self._batches = sample_generator, batch_generator
        self._batch_size, self._batch_nums, self._algo = batch_size, batch_nums, algo
        self._types = supported if is_full_quantize else list(quantizable_op_type)
        self._activation_bits, self._weight_bits = activation_bits, weight_bits
        self._activation_kind, self._weight_kind = activation_quantize_type, weight_quantize_type

    def quantize(self) -> Program:
        """Run the samples, and return the quantized program."""
        with scope_guard(self._scope):
            self._program, self._feed_list, self._fetch_list = io.load_inference_model(*self._model)
            weights, activations = self._collected()
            self._found = self._measured(weights, activations)
        if self._algo == "min_max":
            self._write_inputs()
        else:
            self._program = self._rounded()
        self._write_outputs()
        return self._program

    def save_quantized_model(
        self, save_model_path: str, model_filename: str | None = None, params_filename: str | None = None
    ) -> None:
        """Save the result of ``quantize``, like ``save_inference_model``."""
        with scope_guard(self._scope):
            io.save_inference_model(
                save_model_path,
                self._feed_list,
                self._fetch_list,
                self._executor,
                self._program,
                model_filename,
                params_filename,
            )

    # How large values get.

    def _collected(self) -> tuple[list[str], list[str]]:
        """The relevant weights and activations."""
        names: dict[str, None] = {}
        for op in self._program.global_block().ops:
            if op.type in self._types:
                names.update(dict.fromkeys(read_by(op)))
            if op.type in self._types or op.type in SCALED:
                names.update(dict.fromkeys(written_by(op)))
        held = {var.name for var in self._program.list_vars() if var.persistable}
        return [name for name in names if name in held], [name for name in names if name not in held]

    def _measured(self, weights: list[str], activations: list[str]) -> Mapping[str, Any]:
        """The threshold of each name or, if ranges are requested, its (minimum, maximum)."""
        found = {name: self._of_weight(np.array(held(self._scope, name))) for name in weights}
        seen: dict[str, Any] = {}
        for count, values in enumerate(self._runs(activations)):
            for name, value in zip(activations, values, strict=True):
                seen[name] = self._joined(seen.get(name), np.asarray(value))
            if count % 5 == 0:
                _logger.info("Run batch: %d", count)
        if self._algo == "KL":
            return {**found, **{name: kl_threshold(np.concatenate(sizes)) for name, sizes in seen.items()}}
        return {**found, **seen}

    def _runs(self, names: list[str]) -> Iterator[list[Any]]:
        block = self._program.global_block()
        feeds = [block.var(name) for name in self._feed_list]
        loader = io.DataLoader.from_generator(feeds, capacity=3 * self._batch_size, iterable=True)
        if self._samples is not None:
            loader.set_sample_generator(self._samples, self._batch_size, drop_last=True, places=self._place)
        elif self._batches is not None:
            loader.set_batch_generator(self._batches, places=self._place)
        for data in itertools.islice(loader(), self._batch_nums or None):
            yield self._executor.run(self._program, feed=data, fetch_list=names, return_numpy=False)

    def _of_weight(self, value: np.ndarray) -> Any:
        """One number per row of the first axis; for KL, depending on the type of quantization."""
        rows = value.reshape(len(value), -1)
        if self._algo == "min_max":
            return rows.min(1).astype(float).tolist(), rows.max(1).astype(float).tolist()
        if self._algo == "KL" and self._weight_kind == "abs_max":
            return float(np.max(np.abs(value)))
        return np.abs(rows).max(1).astype(float).tolist()

    def _joined(self, before: Any, value: np.ndarray) -> Any:
        if self._algo == "KL":
            return [*(before or ()), np.abs(value).ravel()]
        if self._algo == "abs_max":
            return max(before or 0.0, float(np.max(np.abs(value))))
        low, high = float(np.min(value)), float(np.max(value))
        return (low, high) if before is None else (min(low, before[0]), max(high, before[1]))

    # The rounded program.

    def _rounded(self) -> Program:
        graph = IrGraph(Graph(self._program.desc), for_test=True)
        QuantizationTransformPass(
            scope=self._scope,
            place=self._place,
            weight_bits=self._weight_bits,
            activation_bits=self._activation_bits,
            activation_quantize_type=self._activation_kind,
            weight_quantize_type=self._weight_kind,
            quantizable_op_type=[name for name in _MAJOR if name in self._types],
        ).apply(graph)
        minor = [name for name in _MINOR if name in self._types]
        AddQuantDequantPass(self._scope, self._place, quantizable_op_type=minor).apply(graph)
        for name, value in self._found.items():
            for scale in (f"{name}.scale", f"{name}.quant_dequant.scale"):
                if (var := self._scope.find_var(scale)) is not None:
                    var.get_tensor().set(np.array([value], "float32"), self._place)
        QuantizationFreezePass(
            self._scope, self._place, self._weight_bits, self._activation_bits, self._weight_kind
        ).apply(graph)
        return graph.to_program()

    def _write_inputs(self) -> None:
        for op in self._program.global_block().ops:
            for name in read_by(op) if op.type in self._types else ():
                low, high = self._found[name]
                op._set_attr(f"{name}.min", low)
                op._set_attr(f"{name}.max", high)

    def _write_outputs(self) -> None:
        for op in self._program.global_block().ops:
            if op.type in self._types or op.type in SCALED:
                self._write_output(op, written_by(op))

    def _write_output(self, op: Operator, names: list[str]) -> None:
        if len(names) != 1:
            raise AssertionError(
                f"Post training quantization only support one output for {op.type}: received {names}. Leave it out of"
                " quantizable_op_type."
            )
        found = self._found[names[0]]
        written = {"out_min": found[0], "out_max": found[1]} if self._algo == "min_max" else {"out_threshold": found}
        for name, value in written.items():
            op._set_attr(name, value)
        if op.type in self._types:
            op._set_attr("quantization_type", _MARKS[self._algo])


def _need(fine: bool, what: str, expected: str, received: object) -> None:
    if not fine:
        raise AssertionError(f"PostTrainingQuantization: {what}: expected {expected}, received {received}. Pass it.")


def _one_of(what: str, received: str, known: tuple[str, ...]) -> None:
    _need(received in known, what, f"one of {', '.join(known)}", received)
