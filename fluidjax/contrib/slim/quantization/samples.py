"""Quantization of a saved model calibrated on samples."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
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
        is_use_cache_file, cache_dir: for KL, keep what was sampled in files of this folder until it is used.

    The steps of ``quantize`` and the fields between them have Fluid's names: tools with models of their own (PaddleX)
    set the fields and call the steps.

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
        self._support_quantize_op_type = supported
        self._executor, self._place = executor, executor.place
        self._scope = global_scope() if scope is None else scope
        self._model_dir, self._model_filename, self._params_filename = model_dir, model_filename, params_filename
        self._sample_generator, self._batch_generator = sample_generator, batch_generator
        self._batch_size, self._batch_nums, self._algo = batch_size, batch_nums, algo
        self._quantizable_op_type = supported if is_full_quantize else list(quantizable_op_type)
        self._activation_bits, self._weight_bits = activation_bits, weight_bits
        self._activation_quantize_type, self._weight_quantize_type = activation_quantize_type, weight_quantize_type
        self._is_use_cache_file, self._cache_dir = is_use_cache_file, cache_dir
        if is_use_cache_file:
            os.makedirs(cache_dir, exist_ok=True)
        self._out_scale_op_list = SCALED
        self._quantized_weight_var_name: set[str] = set()
        self._quantized_act_var_name: set[str] = set()
        self._sampling_data: dict[str, Any] = {}
        self._quantized_var_kl_threshold: dict[str, Any] = {}
        self._quantized_var_abs_max: dict[str, Any] = {}
        self._quantized_var_min: dict[str, Any] = {}
        self._quantized_var_max: dict[str, Any] = {}

    def quantize(self) -> Program:
        """Run the samples, and return the quantized program."""
        with scope_guard(self._scope):
            self._load_model_data()
            self._collect_target_varnames()
            self._set_activation_persistable()
            self._run_samples()
            self._reset_activation_persistable()
        if self._algo == "KL":
            self._calculate_kl_threshold()
        if self._algo == "min_max":
            self._save_input_threhold()
        else:
            self._update_program()
        self._save_output_threshold()
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

    # What is measured.

    def _load_model_data(self) -> None:
        """The program and the loader of its samples."""
        model = (self._model_dir, self._executor, self._model_filename, self._params_filename)
        self._program, self._feed_list, self._fetch_list = io.load_inference_model(*model)
        feeds = [self._program.global_block().var(name) for name in self._feed_list]
        loader = io.DataLoader.from_generator(feeds, capacity=3 * self._batch_size, iterable=True)
        if self._sample_generator is not None:
            loader.set_sample_generator(self._sample_generator, self._batch_size, drop_last=True, places=self._place)
        elif self._batch_generator is not None:
            loader.set_batch_generator(self._batch_generator, places=self._place)
        self._data_loader = loader

    def _collect_target_varnames(self) -> None:
        """Name the relevant weights and activations."""
        names: set[str] = set()
        for op in self._program.global_block().ops:
            if op.type in self._quantizable_op_type:
                names.update(read_by(op))
            if op.type in self._quantizable_op_type or op.type in SCALED:
                names.update(written_by(op))
        weights = names & {var.name for var in self._program.list_vars() if var.persistable}
        self._quantized_weight_var_name |= weights
        self._quantized_act_var_name |= names - weights

    def _set_activation_persistable(self) -> None:
        """Runs leave the activations in the scope."""
        self._mark_activations(True)

    def _reset_activation_persistable(self) -> None:
        """Runs leave no activations in the scope any more."""
        self._mark_activations(False)

    def _mark_activations(self, persistable: bool) -> None:
        for var in self._program.list_vars():
            if var.name in self._quantized_act_var_name:
                var.persistable = persistable

    def _run_samples(self) -> None:
        for count, data in enumerate(itertools.islice(self._data_loader(), self._batch_nums or None)):
            self._executor.run(self._program, feed=data, fetch_list=self._fetch_list, return_numpy=False)
            if self._algo == "KL":
                self._sample_data(count)
            else:
                self._sample_threshold()
            if count % 5 == 0:
                _logger.info("Run batch: %d", count)

    # How large values get.

    def _sample_data(self, iter: int) -> None:
        """Keep the values of run ``iter``, for KL."""
        for name in self._quantized_weight_var_name - set(self._sampling_data):
            self._sampling_data[name] = self._value(name)
        for name in self._quantized_act_var_name:
            if self._is_use_cache_file:
                path = Path(self._cache_dir, f"{name}_{iter}.npy")
                path.parent.mkdir(parents=True, exist_ok=True)  # names may hold slashes
                np.save(path, self._value(name).ravel())
            else:
                self._sampling_data.setdefault(name, []).append(self._value(name).ravel())

    def _calculate_kl_threshold(self) -> None:
        """The threshold of each variable, of what was kept."""
        for name in self._quantized_weight_var_name:
            sizes = np.abs(self._sampling_data[name])
            whole = self._weight_quantize_type == "abs_max"
            self._quantized_var_kl_threshold[name] = float(sizes.max()) if whole else _by_row(sizes, np.max)
        for name in self._quantized_act_var_name:
            sizes = np.abs(np.concatenate(self._sampled(name)))
            self._quantized_var_kl_threshold[name] = self._get_kl_scaling_factor(sizes)

    def _sampled(self, name: str) -> list[np.ndarray]:
        if not self._is_use_cache_file:
            return self._sampling_data[name]
        parts, count = [], 0
        while (path := Path(self._cache_dir, f"{name}_{count}.npy")).exists():
            parts.append(np.load(path))
            path.unlink()
            count += 1
        return parts

    def _get_kl_scaling_factor(self, activation_blob: np.ndarray) -> float:
        """See ``kl_threshold``."""
        return kl_threshold(activation_blob)

    def _sample_threshold(self) -> None:
        """Take the last run into the largest magnitudes, or smallest and largest values: of a weight one per row."""
        low, high, size = self._quantized_var_min, self._quantized_var_max, self._quantized_var_abs_max
        done = low if self._algo == "min_max" else size
        for name in self._quantized_weight_var_name - set(done):
            if self._algo == "min_max":
                low[name], high[name] = _by_row(self._value(name), np.min), _by_row(self._value(name), np.max)
            else:
                size[name] = _by_row(np.abs(self._value(name)), np.max)
        for name in self._quantized_act_var_name:
            value = self._value(name)
            if self._algo == "min_max":
                low[name] = min(float(np.min(value)), low.get(name, np.inf))
                high[name] = max(float(np.max(value)), high.get(name, -np.inf))
            else:
                size[name] = max(float(np.max(np.abs(value))), size.get(name, 0.0))

    def _value(self, name: str) -> np.ndarray:
        return np.array(held(self._scope, name))

    # The rounded program.

    def _update_program(self) -> None:
        """Insert the ops that quantize, with the thresholds as their scales."""
        graph = IrGraph(Graph(self._program.desc), for_test=True)
        QuantizationTransformPass(
            scope=self._scope,
            place=self._place,
            weight_bits=self._weight_bits,
            activation_bits=self._activation_bits,
            activation_quantize_type=self._activation_quantize_type,
            weight_quantize_type=self._weight_quantize_type,
            quantizable_op_type=[name for name in _MAJOR if name in self._quantizable_op_type],
        ).apply(graph)
        minor = [name for name in _MINOR if name in self._quantizable_op_type]
        AddQuantDequantPass(self._scope, self._place, quantizable_op_type=minor).apply(graph)
        found = self._quantized_var_kl_threshold if self._algo == "KL" else self._quantized_var_abs_max
        for name, value in found.items():
            for scale in (f"{name}.scale", f"{name}.quant_dequant.scale"):
                if (var := self._scope.find_var(scale)) is not None:
                    var.get_tensor().set(np.array([value], "float32"), self._place)
        QuantizationFreezePass(
            self._scope, self._place, self._weight_bits, self._activation_bits, self._weight_quantize_type
        ).apply(graph)
        self._program = graph.to_program()

    def _save_input_threhold(self) -> None:  # (Fluid's spelling)
        """Write the ranges of what ops read into their attributes."""
        for op in self._program.global_block().ops:
            for name in read_by(op) if op.type in self._quantizable_op_type else ():
                op._set_attr(f"{name}.min", self._quantized_var_min[name])
                op._set_attr(f"{name}.max", self._quantized_var_max[name])

    def _save_output_threshold(self) -> None:
        """Write the thresholds or ranges of what ops write into their attributes."""
        for op in self._program.global_block().ops:
            if op.type in self._quantizable_op_type or op.type in SCALED:
                self._write_output(op, written_by(op))

    def _write_output(self, op: Operator, names: list[str]) -> None:
        if len(names) != 1:
            raise AssertionError(
                f"Post training quantization only support one output for {op.type}: received {names}. Leave it out of"
                " quantizable_op_type."
            )
        if self._algo == "min_max":
            op._set_attr("out_min", self._quantized_var_min[names[0]])
            op._set_attr("out_max", self._quantized_var_max[names[0]])
        else:
            found = self._quantized_var_kl_threshold if self._algo == "KL" else self._quantized_var_abs_max
            op._set_attr("out_threshold", found[names[0]])
        if op.type in self._quantizable_op_type:
            op._set_attr("quantization_type", _MARKS[self._algo])


def _by_row(value: np.ndarray, of: Callable[..., np.ndarray]) -> list[float]:
    """One number per row of the first axis."""
    return of(value.reshape(len(value), -1), axis=1).astype(float).tolist()


def _need(fine: bool, what: str, expected: str, received: object) -> None:
    if not fine:
        raise AssertionError(f"PostTrainingQuantization: {what}: expected {expected}, received {received}. Pass it.")


def _one_of(what: str, received: str, known: tuple[str, ...]) -> None:
    _need(received in known, what, f"one of {', '.join(known)}", received)
