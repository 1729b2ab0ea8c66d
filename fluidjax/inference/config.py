"""The configuration of a predictor: which model to load and where to run it.

Fluid's switches select among its own graph passes and engines. Here XLA compiles each model as a whole. Switches
without a counterpart only store their setting, so that it can be queried, and are documented as having no effect.
"""

from __future__ import annotations

import enum
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fluidjax.base import pool
from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.base.places import CPUPlace, CUDAPlace, Place, is_compiled_with_cuda, jax_device
from fluidjax.inference.model_files import Model
from fluidjax.inference.pass_builder import CpuPassStrategy, GpuPassStrategy, PassStrategy
from fluidjax.inference.quantizer import MkldnnQuantizerConfig


class Precision(enum.IntEnum):
    """The precision of an engine. Models always run in the dtypes they were saved with."""

    Float32 = 0
    Int8 = 1
    Half = 2


class AnalysisConfig:
    """A model, and how to run it.

    Args:
        none: specify the model later, with ``set_model``.
        model_dir: a directory written by ``save_inference_model``.
        prog_file, params_file: the two files of a model with combined parameters.
        other: a config to copy.
    """

    Precision = Precision
    Float32, Int8, Half = Precision  # pybind exports them to the class, too

    def __init__(self, *model: str | AnalysisConfig):
        self._model = Model()
        self._gpu: int | None = None
        self._settings: dict[str, Any] = {
            "memory_pool_init_size_mb": 100,
            "cpu_math_library_num_threads": 1,
            "ir_optim": True,
            "use_feed_fetch_ops": True,
        }
        self._passes: PassStrategy = CpuPassStrategy()
        if len(model) == 1 and isinstance(model[0], AnalysisConfig):
            self._copy(model[0])
        elif model:
            self.set_model(*model)  # type: ignore[arg-type]

    def _copy(self, other: AnalysisConfig) -> None:
        self._model.__dict__.update(other._model.__dict__)
        self._gpu, self._settings = other._gpu, dict(other._settings)
        self._passes = type(other._passes)(other._passes)  # type: ignore[arg-type]  # one of the two strategies

    # The model.

    def set_model(self, *model: str) -> None:
        """Specify the model: a directory, or the program and parameter files. Raises TypeError for anything else."""
        if not 1 <= len(model) <= 2 or not all(isinstance(path, (str, os.PathLike)) for path in model):
            raise TypeError(
                explain(
                    "AnalysisConfig: what names the model is not understood",
                    "a folder, or the program's file and the parameters' file",
                    ", ".join(type(path).__name__ for path in model) or "nothing",
                    "write AnalysisConfig(folder) or AnalysisConfig(program_file, parameters_file)",
                )
            )
        paths = [os.fspath(path) for path in model]
        self._model = Model()
        if len(paths) == 1:
            self._model.folder = paths[0]
        else:
            self._model.program, self._model.parameters = paths

    def set_prog_file(self, path: str) -> None:
        """Specify the program file."""
        self._model.program = path

    def set_params_file(self, path: str) -> None:
        """Specify the parameter file."""
        self._model.parameters = path

    def set_model_buffer(self, prog: bytes, prog_size: int, params: bytes, params_size: int) -> None:
        """Specify the model by the contents of its two files, using the given number of bytes of each."""
        self._model = Model()
        self._model.contents = bytes(prog)[:prog_size], bytes(params)[:params_size]

    def model_from_memory(self) -> bool:
        """Whether the model is given by contents."""
        return self._model.contents is not None

    def model_dir(self) -> str:
        """The model's directory, or ''."""
        return self._model.folder

    def prog_file(self) -> str:
        """The program file, or ''."""
        return self._model.program

    def params_file(self) -> str:
        """The parameter file, or ''."""
        return self._model.parameters

    # Where it runs.

    def enable_use_gpu(self, memory_pool_init_size_mb: int, device_id: int = 0) -> None:
        """Run on a GPU, if there is one; otherwise warn and stay on the CPU, as in Fluid's CPU build.

        Args:
            memory_pool_init_size_mb: the first chunk of the device's memory; the pool grows from there. Like the flags
                of memory, it changes nothing once JAX has started.
            device_id: index of the device.
        """
        if self._use_gpu(lambda limit: memory_pool_init_size_mb << 20, device_id):
            self._settings["memory_pool_init_size_mb"] = memory_pool_init_size_mb

    def _use_gpu(self, first: Callable[[int], int], device_id: int) -> bool:
        pool.ask(first)
        if not is_compiled_with_cuda():
            warnings.warn("AnalysisConfig.enable_use_gpu: JAX sees no GPU; the model runs on the CPU", stacklevel=3)
            return False
        self._gpu, self._passes = device_id, GpuPassStrategy()
        return True

    def disable_gpu(self) -> None:
        """Run on the CPU."""
        self._gpu, self._passes = None, CpuPassStrategy()

    def use_gpu(self) -> bool:
        """Whether the model runs on a GPU."""
        return self._gpu is not None

    def gpu_device_id(self) -> int:
        """The index of the GPU."""
        return self._gpu or 0

    def place(self) -> Place:
        """Where the model runs."""
        return CPUPlace() if self._gpu is None else CUDAPlace(self._gpu)

    def memory_pool_init_size_mb(self) -> int:
        """The stored setting."""
        return self._settings["memory_pool_init_size_mb"]

    def fraction_of_gpu_memory_for_pool(self) -> float:
        """The first chunk's part of what JAX may take of the device; 0 without a GPU, as in Fluid's CPU build."""
        limit = 0 if self._gpu is None else pool.limit(jax_device(self.place()))
        return (self.memory_pool_init_size_mb() << 20) / limit if limit else 0.0

    # How inputs are told apart.

    def switch_specify_input_names(self, x: bool = True) -> None:
        """Whether inputs of ``run`` are matched by name instead of order."""
        self._settings["specify_input_name"] = bool(x)

    def specify_input_name(self) -> bool:
        """Whether inputs are matched by name."""
        return self._settings.get("specify_input_name", False)

    def switch_use_feed_fetch_ops(self, x: int = True) -> None:
        """No effect: ``run`` and ``zero_copy_run`` both work with either setting."""
        self._settings["use_feed_fetch_ops"] = bool(x)

    def use_feed_fetch_ops_enabled(self) -> bool:
        """The stored setting."""
        return self._settings["use_feed_fetch_ops"]

    # What has nothing to switch here.

    def switch_ir_optim(self, x: int = True) -> None:
        """Whether to apply the passes of ``pass_builder`` before XLA compiles the program."""
        self._settings["ir_optim"] = bool(x)

    def ir_optim(self) -> bool:
        """The stored setting."""
        return self._settings["ir_optim"]

    def switch_ir_debug(self, x: int = True) -> None:
        """No effect."""
        self._settings["ir_debug"] = bool(x)

    def enable_mkldnn(self) -> None:
        """No effect; XLA uses its own kernels."""
        self._settings["mkldnn"] = True

    def mkldnn_enabled(self) -> bool:
        """The stored setting."""
        return self._settings.get("mkldnn", False)

    def set_mkldnn_cache_capacity(self, capacity: int = 0) -> None:
        """No effect."""
        self._settings["mkldnn_cache_capacity"] = capacity

    def set_mkldnn_op(self, ops: Iterable[str]) -> None:
        """No effect."""
        self._settings["mkldnn_op"] = set(ops)

    def enable_tensorrt_engine(
        self,
        workspace_size: int = 1 << 20,
        max_batch_size: int = 1,
        min_subgraph_size: int = 3,
        precision_mode: int = Precision.Float32,
        use_static: bool = False,
        use_calib_mode: bool = True,
    ) -> None:
        """No effect; XLA compiles for the GPU, in the model's own dtypes."""
        self._settings["tensorrt"] = Precision(precision_mode)

    def tensorrt_engine_enabled(self) -> bool:
        """The stored setting."""
        return "tensorrt" in self._settings

    def set_trt_dynamic_shape_info(
        self,
        min_input_shape: Mapping[str, Sequence[int]] | None = None,
        max_input_shape: Mapping[str, Sequence[int]] | None = None,
        optim_input_shape: Mapping[str, Sequence[int]] | None = None,
        disable_trt_plugin_fp16: bool = False,
    ) -> None:
        """No effect; a model is compiled for each shape encountered."""
        self._settings["trt_shapes"] = (min_input_shape, max_input_shape, optim_input_shape)

    def enable_lite_engine(
        self,
        zero_copy: bool = False,
        precision_mode: int = Precision.Float32,
        passes_filter: Sequence[str] = (),
        ops_filter: Sequence[str] = (),
    ) -> None:
        """No effect."""
        self._settings["lite"] = Precision(precision_mode)

    def lite_engine_enabled(self) -> bool:
        """The stored setting."""
        return "lite" in self._settings

    def enable_quantizer(self) -> None:
        """No effect; a model runs on integers only if it was saved that way."""
        self._settings.setdefault("quantizer", MkldnnQuantizerConfig())

    def quantizer_config(self) -> MkldnnQuantizerConfig:
        """The settings of ``enable_quantizer``. Raises EnforceNotMet where that was not called."""
        if "quantizer" not in self._settings:
            raise EnforceNotMet("MkldnnQuantizer was not enabled yet: expected enable_quantizer() before. Call it.")
        return self._settings["quantizer"]

    def enable_memory_optim(self) -> None:
        """No effect; XLA always reuses memory."""
        self._settings["memory_optim"] = True

    def enable_profile(self) -> None:
        """No effect; ``fluid.profiler`` measures predictors as it does executors."""
        self._settings["profile"] = True

    def disable_glog_info(self) -> None:
        """No effect; predictors write no log."""
        self._settings["glog_disabled"] = True

    def glog_info_disabled(self) -> bool:
        """The stored setting."""
        return self._settings.get("glog_disabled", False)

    def set_cpu_math_library_num_threads(self, count: int) -> None:
        """No effect; XLA uses the threads of the process."""
        self._settings["cpu_math_library_num_threads"] = count

    def cpu_math_library_num_threads(self) -> int:
        """The stored setting."""
        return self._settings["cpu_math_library_num_threads"]

    def set_optim_cache_dir(self, path: str) -> None:
        """No effect; ``FLAGS_compilation_cache_dir`` sets where executables are cached."""
        self._settings["optim_cache_dir"] = path

    def pass_builder(self) -> PassStrategy:
        """The editable list of passes that a predictor applies; see ``fluidjax.inference.passes``."""
        return self._passes

    def delete_pass(self, name: str) -> None:
        """Remove a pass from ``pass_builder``."""
        self._passes.delete_pass(name)

    def to_native_config(self) -> NativeConfig:
        """A NativeConfig with the same model and device."""
        native = NativeConfig()
        native.model_dir, native.prog_file = self.model_dir(), self.prog_file()
        native.param_file, native.use_gpu = self.params_file(), self.use_gpu()
        native.device, native.specify_input_name = self.gpu_device_id(), self.specify_input_name()
        return native


class NativeConfig:
    """The older form of config: a model and a device.

    Attributes:
        model_dir, prog_file, param_file: a directory, or two files.
        use_gpu, device: where to run.
        fraction_of_gpu_memory: the first chunk of the device's memory, if 0 to 0.95, as the flag of that name.
        specify_input_name: whether inputs are matched by name.
    """

    def __init__(self) -> None:
        self.model_dir = ""
        self.prog_file = ""
        self.param_file = ""
        self.use_gpu = False
        self.device = 0
        self.fraction_of_gpu_memory = -1.0
        self.specify_input_name = False
        self._threads = 1

    def set_cpu_math_library_num_threads(self, count: int) -> None:
        """No effect; XLA uses the threads of the process."""
        self._threads = count

    def cpu_math_library_num_threads(self) -> int:
        """The stored setting."""
        return self._threads

    def as_analysis(self) -> AnalysisConfig:
        """An AnalysisConfig with the same model and device."""
        config = AnalysisConfig()
        config._model.folder = self.model_dir
        config._model.program, config._model.parameters = self.prog_file, self.param_file
        config.switch_specify_input_names(self.specify_input_name)
        config.switch_ir_optim(False)
        if self.use_gpu:
            fraction = self.fraction_of_gpu_memory
            config._use_gpu(lambda limit: int(limit * fraction) if 0 <= fraction <= 0.95 else 100 << 20, self.device)
        return config
