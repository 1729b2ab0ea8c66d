"""What a predictor is to load and where it is to run.

Fluid's switches choose among its own graph passes and engines. Here XLA compiles every model as a whole, whatever they
say: those that have nothing to switch keep their setting, so that what was set can be asked, and their docstrings say
that they change nothing.
"""

from __future__ import annotations

import enum
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.base.places import CPUPlace, CUDAPlace, Place, is_compiled_with_cuda
from fluidjax.inference.model_files import Model
from fluidjax.inference.pass_builder import CpuPassStrategy, GpuPassStrategy, PassStrategy


class Precision(enum.IntEnum):
    """What an engine within the predictor computes in. Models are computed in the data types they were saved with."""

    Float32 = 0
    Int8 = 1
    Half = 2


class AnalysisConfig:
    """A model, and how to run it.

    Args:
        none: the model is named later, by ``set_model``.
        model_dir: a folder as ``save_inference_model`` writes it.
        prog_file, params_file: the two files of a model in two files.
        other: a config to copy.
    """

    Precision = Precision

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
        """Name a model: a folder, or the program's and the parameters' files. Raises TypeError for anything else."""
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
        """Name the program's file."""
        self._model.program = path

    def set_params_file(self, path: str) -> None:
        """Name the parameters' file."""
        self._model.parameters = path

    def set_model_buffer(self, prog: bytes, prog_size: int, params: bytes, params_size: int) -> None:
        """Take a model from the contents of its two files; as many bytes of each as the sizes say."""
        self._model = Model()
        self._model.contents = bytes(prog)[:prog_size], bytes(params)[:params_size]

    def model_from_memory(self) -> bool:
        """Whether the model is given by contents."""
        return self._model.contents is not None

    def model_dir(self) -> str:
        """The model's folder; '' where there is none."""
        return self._model.folder

    def prog_file(self) -> str:
        """The program's file; '' where none was named."""
        return self._model.program

    def params_file(self) -> str:
        """The parameters' file; '' where none was named."""
        return self._model.parameters

    # Where it runs.

    def enable_use_gpu(self, memory_pool_init_size_mb: int, device_id: int = 0) -> None:
        """Run on a GPU, where there is one; else warn and stay on the CPU, as Fluid's CPU build does.

        Args:
            memory_pool_init_size_mb: kept; JAX's own allocator serves the device.
            device_id: which one.
        """
        if not is_compiled_with_cuda():
            warnings.warn("AnalysisConfig.enable_use_gpu: JAX sees no GPU; the model runs on the CPU", stacklevel=2)
            return
        self._gpu, self._passes = device_id, GpuPassStrategy()
        self._settings["memory_pool_init_size_mb"] = memory_pool_init_size_mb

    def disable_gpu(self) -> None:
        """Run on the CPU."""
        self._gpu, self._passes = None, CpuPassStrategy()

    def use_gpu(self) -> bool:
        """Whether a GPU is to run the model."""
        return self._gpu is not None

    def gpu_device_id(self) -> int:
        """Which GPU."""
        return self._gpu or 0

    def place(self) -> Place:
        """Where the model runs."""
        return CPUPlace() if self._gpu is None else CUDAPlace(self._gpu)

    def memory_pool_init_size_mb(self) -> int:
        """As it was set."""
        return self._settings["memory_pool_init_size_mb"]

    def fraction_of_gpu_memory_for_pool(self) -> float:
        """0: the pool is JAX's."""
        return 0.0

    # How inputs are told apart.

    def switch_specify_input_names(self, x: bool = True) -> None:
        """Whether the tensors given to ``run`` go by their names, not by their order."""
        self._settings["specify_input_name"] = bool(x)

    def specify_input_name(self) -> bool:
        """Whether inputs go by name."""
        return self._settings.get("specify_input_name", False)

    def switch_use_feed_fetch_ops(self, x: int = True) -> None:
        """Kept; ``run`` and ``zero_copy_run`` both work, whatever it says."""
        self._settings["use_feed_fetch_ops"] = bool(x)

    def use_feed_fetch_ops_enabled(self) -> bool:
        """As it was set."""
        return self._settings["use_feed_fetch_ops"]

    # What has nothing to switch here.

    def switch_ir_optim(self, x: int = True) -> None:
        """Whether the passes of ``pass_builder`` change the program before XLA compiles it."""
        self._settings["ir_optim"] = bool(x)

    def ir_optim(self) -> bool:
        """As it was set."""
        return self._settings["ir_optim"]

    def switch_ir_debug(self, x: int = True) -> None:
        """Kept; changes nothing."""
        self._settings["ir_debug"] = bool(x)

    def enable_mkldnn(self) -> None:
        """Kept; XLA brings its own kernels."""
        self._settings["mkldnn"] = True

    def mkldnn_enabled(self) -> bool:
        """As it was set."""
        return self._settings.get("mkldnn", False)

    def set_mkldnn_cache_capacity(self, capacity: int = 0) -> None:
        """Kept; changes nothing."""
        self._settings["mkldnn_cache_capacity"] = capacity

    def set_mkldnn_op(self, ops: Iterable[str]) -> None:
        """Kept; changes nothing."""
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
        """Kept; XLA compiles for the GPU, in the model's own data types."""
        self._settings["tensorrt"] = Precision(precision_mode)

    def tensorrt_engine_enabled(self) -> bool:
        """As it was set."""
        return "tensorrt" in self._settings

    def set_trt_dynamic_shape_info(
        self,
        min_input_shape: Mapping[str, Sequence[int]] | None = None,
        max_input_shape: Mapping[str, Sequence[int]] | None = None,
        optim_input_shape: Mapping[str, Sequence[int]] | None = None,
        disable_trt_plugin_fp16: bool = False,
    ) -> None:
        """Kept; each shape that comes is compiled for."""
        self._settings["trt_shapes"] = (min_input_shape, max_input_shape, optim_input_shape)

    def enable_lite_engine(
        self,
        zero_copy: bool = False,
        precision_mode: int = Precision.Float32,
        passes_filter: Sequence[str] = (),
        ops_filter: Sequence[str] = (),
    ) -> None:
        """Kept; changes nothing."""
        self._settings["lite"] = Precision(precision_mode)

    def lite_engine_enabled(self) -> bool:
        """As it was set."""
        return "lite" in self._settings

    def enable_quantizer(self) -> None:
        """Kept; a model that is to run on integers must have been saved so."""
        self._settings["quantizer"] = True

    def enable_memory_optim(self) -> None:
        """Kept; XLA reuses memory in every model."""
        self._settings["memory_optim"] = True

    def enable_profile(self) -> None:
        """Kept; ``fluid.profiler`` measures predictors as it measures executors."""
        self._settings["profile"] = True

    def disable_glog_info(self) -> None:
        """Kept; predictors write no log."""
        self._settings["glog_disabled"] = True

    def glog_info_disabled(self) -> bool:
        """As it was set."""
        return self._settings.get("glog_disabled", False)

    def set_cpu_math_library_num_threads(self, count: int) -> None:
        """Kept; XLA's threads are those of the process."""
        self._settings["cpu_math_library_num_threads"] = count

    def cpu_math_library_num_threads(self) -> int:
        """As it was set."""
        return self._settings["cpu_math_library_num_threads"]

    def set_optim_cache_dir(self, path: str) -> None:
        """Kept; ``FLAGS_compilation_cache_dir`` names where executables are kept."""
        self._settings["optim_cache_dir"] = path

    def pass_builder(self) -> PassStrategy:
        """The passes that a predictor runs, to be edited; see ``fluidjax.inference.passes``."""
        return self._passes

    def delete_pass(self, name: str) -> None:
        """Take a name out of ``pass_builder``."""
        self._passes.delete_pass(name)

    def to_native_config(self) -> NativeConfig:
        """The same model and place as a NativeConfig."""
        native = NativeConfig()
        native.model_dir, native.prog_file = self.model_dir(), self.prog_file()
        native.param_file, native.use_gpu = self.params_file(), self.use_gpu()
        native.device, native.specify_input_name = self.gpu_device_id(), self.specify_input_name()
        return native


class NativeConfig:
    """The older config: a model and a device.

    Attributes:
        model_dir, prog_file, param_file: a folder, or two files.
        use_gpu, device: where to run.
        fraction_of_gpu_memory: kept; JAX's own allocator serves the device.
        specify_input_name: whether inputs go by name.
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
        """Kept; XLA's threads are those of the process."""
        self._threads = count

    def cpu_math_library_num_threads(self) -> int:
        """As it was set."""
        return self._threads

    def as_analysis(self) -> AnalysisConfig:
        """The same model and place as an AnalysisConfig."""
        config = AnalysisConfig()
        config._model.folder = self.model_dir
        config._model.program, config._model.parameters = self.prog_file, self.param_file
        config.switch_specify_input_names(self.specify_input_name)
        config.switch_ir_optim(False)
        if self.use_gpu:
            config.enable_use_gpu(100, self.device)
        return config
