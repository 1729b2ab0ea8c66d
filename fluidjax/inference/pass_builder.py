"""The editable list of passes of an AnalysisConfig."""

from __future__ import annotations

from collections.abc import Iterable


class PaddlePassBuilder:
    """A list of the names of passes that a predictor applies to its program, excluding XLA's own.

    Args:
        passes: the initial names.
    """

    def __init__(self, passes: Iterable[str]):
        self._passes = list(passes)
        self._analysis: list[str] = []

    def set_passes(self, passes: Iterable[str]) -> None:
        """Replace the list."""
        self._passes = list(passes)

    def append_pass(self, name: str) -> None:
        """Append a pass."""
        self._passes.append(name)

    def insert_pass(self, index: int, name: str) -> None:
        """Insert a pass before the one at ``index``."""
        self._passes.insert(index, name)

    def delete_pass(self, name: str) -> None:
        """Remove all occurrences of a pass, if any."""
        self._passes = [other for other in self._passes if other != name]

    def append_analysis_pass(self, name: str) -> None:
        """Append an analysis pass."""
        self._analysis.append(name)

    def all_passes(self) -> list[str]:
        """The names of the passes, in order."""
        return list(self._passes)

    def analysis_passes(self) -> list[str]:
        """The names of the analysis passes, in order."""
        return list(self._analysis)

    def turn_on_debug(self) -> None:
        """No effect: programs are drawn by ``fluidjax.contrib`` and the debugger."""

    def debug_string(self) -> str:
        """The names, one per line."""
        return "".join(f"  - {name}\n" for name in self._passes)


class PassStrategy(PaddlePassBuilder):
    """A list of passes, and the device they are for."""

    def use_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return False

    def enable_cudnn(self) -> None:
        """No effect: XLA chooses the kernels."""

    def enable_mkldnn(self) -> None:
        """No effect: XLA uses its own kernels."""

    def enable_mkldnn_quantizer(self) -> None:
        """No effect: XLA uses its own kernels."""


# As a predictor of Fluid 1.8.5 says that it runs them. What each does here is in ``fluidjax.inference.passes``.
_ON_CPU = (
    "simplify_with_basic_ops_pass attention_lstm_fuse_pass seqconv_eltadd_relu_fuse_pass seqpool_cvm_concat_fuse_pass"
    " fc_lstm_fuse_pass mul_lstm_fuse_pass fc_gru_fuse_pass mul_gru_fuse_pass seq_concat_fc_fuse_pass fc_fuse_pass"
    " repeated_fc_relu_fuse_pass squared_mat_sub_fuse_pass conv_bn_fuse_pass conv_eltwiseadd_bn_fuse_pass"
    " conv_transpose_bn_fuse_pass conv_transpose_eltwiseadd_bn_fuse_pass is_test_pass runtime_context_cache_pass"
).split()
_ON_GPU = (
    "is_test_pass simplify_with_basic_ops_pass conv_affine_channel_fuse_pass conv_eltwiseadd_affine_channel_fuse_pass"
    " conv_bn_fuse_pass conv_eltwiseadd_bn_fuse_pass multihead_matmul_fuse_pass_v2 fc_fuse_pass"
    " fc_elementwise_layernorm_fuse_pass conv_elementwise_add_act_fuse_pass conv_elementwise_add2_act_fuse_pass"
    " conv_elementwise_add_fuse_pass transpose_flatten_concat_fuse_pass runtime_context_cache_pass"
).split()
_ANALYSIS = (
    "ir_graph_build_pass ir_graph_clean_pass ir_analysis_pass ir_params_sync_among_devices_pass"
    " adjust_cudnn_workspace_size_pass inference_op_replace_pass"
).split()


class CpuPassStrategy(PassStrategy):
    """The passes that a predictor applies on a CPU.

    Args:
        other: a strategy to copy.
    """

    def __init__(self, other: PaddlePassBuilder | None = None):
        super().__init__(_ON_CPU if other is None else other.all_passes())
        self._analysis = list(_ANALYSIS if other is None else other.analysis_passes())


class GpuPassStrategy(PassStrategy):
    """The passes that a predictor applies on a GPU.

    Args:
        other: a strategy to copy.
    """

    def __init__(self, other: PaddlePassBuilder | None = None):
        super().__init__(_ON_GPU if other is None else other.all_passes())
        self._analysis = list(_ANALYSIS if other is None else other.analysis_passes())

    def use_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return True
