"""The graph passes of Fluid's parallel executor, as a list that scripts may modify.

XLA fuses, schedules and frees, so most passes are just names with settings. ``graph_viz_pass`` draws the program before
the first run, ``multi_batch_merge_pass`` changes what runs. ``APPLIED`` defines what a pass does to a ``core.Graph``;
known passes that are not listed do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fluidjax.base.errors import EnforceNotMet
from fluidjax.framework import Program
from fluidjax.framework.batch_merge import merged

VIZ, _PRINT = "graph_viz_pass", "multi_devices_print_pass"
MERGE = "multi_batch_merge_pass"

# What a pass does to a graph, by its name; whatever makes graphs fills it.
APPLIED: dict[str, Callable[[Pass, Any], None]] = {}

# What Fluid 1.8.5's builder knows of, besides those of inference.
_PARALLEL = frozenset(
    "add_reader_dependency_pass all_reduce_deps_pass all_reduce_mode_multi_devices_pass async_multi_devices_pass"
    " backward_optimizer_op_deps_pass buffer_shared_cross_op_memory_reuse_pass buffer_shared_inplace_pass"
    " coalesce_grad_tensor_pass dist_multi_devices_pass eager_deletion_pass fuse_adam_op_pass fuse_all_reduce_op_pass"
    " fuse_bn_act_pass fuse_elewise_add_act_pass fuse_momentum_op_pass fuse_relu_depthwise_conv_pass fuse_sgd_op_pass"
    " graph_to_program_pass graph_viz_pass lock_free_optimize_pass modify_op_lock_and_record_event_pass"
    " multi_batch_merge_pass multi_devices_check_pass multi_devices_print_pass reduce_mode_multi_devices_pass"
    " reference_count_pass runtime_context_cache_pass  sequential_execution_pass sync_batch_norm_pass".split()
)

# Those of inference. Of these XLA does what they are for: it fuses elementwise ops into products and convolutions, and
# sequences are computed in packed time-major order with the products of all steps at once.
_INFERENCE = frozenset(
    "attention_lstm_fuse_pass conv_affine_channel_fuse_pass conv_bn_fuse_pass conv_elementwise_add2_act_fuse_pass"
    " conv_elementwise_add_act_fuse_pass conv_elementwise_add_fuse_pass conv_eltwiseadd_affine_channel_fuse_pass"
    " conv_eltwiseadd_bn_fuse_pass conv_transpose_bn_fuse_pass conv_transpose_eltwiseadd_bn_fuse_pass"
    " delete_quant_dequant_op_pass embedding_fc_lstm_fuse_pass fc_elementwise_layernorm_fuse_pass fc_fuse_pass"
    " fc_gru_fuse_pass fc_lstm_fuse_pass identity_scale_op_clean_pass is_test_pass matmul_transpose_reshape_fuse_pass"
    " mul_gru_fuse_pass mul_lstm_fuse_pass multihead_matmul_fuse_pass multihead_matmul_fuse_pass_v2"
    " quant_conv2d_dequant_fuse_pass repeated_fc_relu_fuse_pass scale_matmul_fuse_pass seq_concat_fc_fuse_pass"
    " seqconv_eltadd_relu_fuse_pass seqpool_concat_fuse_pass seqpool_cvm_concat_fuse_pass shuffle_channel_detect_pass"
    " simplify_with_basic_ops_pass skip_layernorm_fuse_pass squared_mat_sub_fuse_pass"
    " transpose_flatten_concat_fuse_pass".split()
)

# Those that place ops on oneDNN, which XLA has kernels of its own for, and those that free what loops have used.
_PLACING = frozenset(
    "conditional_block_op_eager_deletion_pass conv3d_bias_mkldnn_fuse_pass conv_activation_mkldnn_fuse_pass"
    " conv_bias_mkldnn_fuse_pass conv_concat_relu_mkldnn_fuse_pass conv_elementwise_add_mkldnn_fuse_pass"
    " conv_leaky_relu_mkldnn_fuse_pass conv_relu6_mkldnn_fuse_pass conv_relu_mkldnn_fuse_pass"
    " conv_swish_mkldnn_fuse_pass conv_transpose_bias_mkldnn_fuse_pass cpu_quantize_pass cpu_quantize_placement_pass"
    " cpu_quantize_squash_pass depthwise_conv_mkldnn_pass fc_mkldnn_pass mkldnn_inplace_pass mkldnn_placement_pass"
    " recurrent_op_eager_deletion_pass while_op_eager_deletion_pass".split()
)

# Ours, which Fluid has not: ``fluidjax.ir`` has what they do.
_OWN = frozenset(
    "common_subexpression_elimination_pass constant_folding_pass dead_code_elimination_pass"
    " identity_op_clean_pass".split()
)
KNOWN = _PARALLEL | _INFERENCE | _PLACING | _OWN


class Pass:
    """A pass: its type and the attributes that have been set."""

    def __init__(self, type: str):
        self._type = type
        self._attrs: dict[str, Any] = {}

    def type(self) -> str:
        """Its name."""
        return self._type

    def has(self, name: str) -> bool:
        """Whether an attribute has been set."""
        return name in self._attrs

    def set(self, name: str, value: Any) -> None:
        """Set an attribute. Raises EnforceNotMet if it is already set."""
        if name in self._attrs:
            raise EnforceNotMet(
                f"Attribute {name} already set in the pass {self._type}: it holds {self._attrs[name]!r}. Expected a new"
                " one. Set each once"
            )
        self._attrs[name] = value

    set_not_owned = set

    def get(self, name: str) -> Any:
        """The value of an attribute. Raises KeyError if it is not set."""
        return self._attrs[name]

    def required(self, name: str) -> Any:
        """The value of an attribute that the pass cannot do without. Raises EnforceNotMet if it is not set."""
        if name not in self._attrs:
            raise EnforceNotMet(
                f"Required attribute {name} of pass {self._type} is not set. Expected a value before apply(). Call"
                f" set({name!r}, ...) first."
            )
        return self._attrs[name]

    def apply(self, graph: Any) -> Any:
        """Apply the pass to a ``core.Graph`` and return it; a no-op where XLA does the work.

        Raises EnforceNotMet if a required attribute is missing.
        """
        APPLIED.get(self._type, lambda one, graph: None)(self, graph)
        return graph

    def merge(self, program: Program) -> Program:
        """The effect of ``multi_batch_merge_pass``, see ``framework.batch_merge``; other passes have none.

        Raises EnforceNotMet if ``num_repeats`` is missing, or not a whole number from 1.
        """
        if self._type != MERGE:
            return program
        repeats = self.required("num_repeats")
        if type(repeats) is not int or repeats < 1:
            raise EnforceNotMet(
                f"Attribute num_repeats of pass {self._type} is how many batches make an update: expected a whole"
                f" number from 1, received {repeats!r}. Set one"
            )
        return merged(program, repeats)

    def draw(self, program: Program) -> None:
        """The effect of ``graph_viz_pass``: write the graph of block 0 to the file named by ``graph_viz_path``."""
        if self._type == VIZ and self._attrs.get("graph_viz_path"):
            from fluidjax.debugger import write_block_graph

            write_block_graph(program.global_block(), (), self._attrs["graph_viz_path"])


def get_pass(pass_type: str) -> Pass:
    """A pass by name. Raises EnforceNotMet for a name unknown to Fluid."""
    if pass_type not in KNOWN:
        raise EnforceNotMet(
            f"Pass {pass_type} has not been registered: expected one of {', '.join(sorted(KNOWN))}. Take one of them"
        )
    return Pass(pass_type)


class PassBuilder:
    """A list of passes."""

    def __init__(self) -> None:
        self._passes: list[Pass] = []

    def all_passes(self) -> list[Pass]:
        """The passes, in order."""
        return list(self._passes)

    def append_pass(self, pass_type: str) -> Pass:
        """Append a pass, and return it. Raises EnforceNotMet for a name unknown to Fluid."""
        return self.insert_pass(len(self._passes), pass_type)

    def insert_pass(self, idx: int, pass_type: str) -> Pass:
        """Insert a pass before the one at `idx`, and return it."""
        added = get_pass(pass_type)
        _check_index(idx, len(self._passes) + 1)
        self._passes.insert(idx, added)
        return self._passes[idx]

    def remove_pass(self, idx: int) -> None:
        """Remove the pass at `idx`. Raises EnforceNotMet if there is none."""
        _check_index(idx, len(self._passes))
        del self._passes[idx]

    def merge(self, program: Program) -> Program:
        """The program that passes make of this one."""
        for one in self._passes:
            program = one.merge(program)
        return program

    def draw(self, program: Program) -> None:
        """Run the passes that draw."""
        for one in self._passes:
            one.draw(program)


def _check_index(idx: int, bound: int) -> None:
    if not 0 <= idx < bound:
        raise EnforceNotMet(
            f"PassBuilder: no place {idx}. Expected 0 ... {bound - 1}. Look at all_passes() for what is there"
        )


def built(settings: Mapping[str, Any]) -> PassBuilder:
    """The passes selected by a BuildStrategy's settings, in Fluid 1.8.5's order."""
    builder = PassBuilder()
    at = settings["debug_graphviz_path"]
    for name in _names(settings):
        added = builder.append_pass(name)
        if name == VIZ:
            added.set("graph_viz_path", at + ("_fused_graph" if len(builder.all_passes()) > 1 else "_original_graph"))
    return builder


def _names(settings: Mapping[str, Any]) -> Iterator[str]:
    on, drawn = settings.__getitem__, bool(settings["debug_graphviz_path"])
    reducing = settings["reduce_strategy"] == 1
    spread = on("async_mode") or on("is_distribution") or reducing
    if drawn:
        yield VIZ
    yield from (name for setting, name in _BEFORE.items() if on(setting))
    if on("fuse_all_reduce_ops") and not spread:
        yield "coalesce_grad_tensor_pass"
    if on("fuse_all_optimizer_ops") and not spread:
        yield from ("fuse_adam_op_pass", "fuse_sgd_op_pass", "fuse_momentum_op_pass")
    if drawn:
        yield VIZ
    yield from ("add_reader_dependency_pass", _over_devices(settings, reducing))
    if on("fuse_all_reduce_ops") and not spread:
        yield "fuse_all_reduce_op_pass"
    if drawn:
        yield _PRINT
    if not reducing or on("async_mode") or on("is_distribution"):
        yield "all_reduce_deps_pass"
    if on("num_trainers") > 1 and not spread:
        yield "backward_optimizer_op_deps_pass"
    if on("cache_runtime_context"):
        yield "runtime_context_cache_pass"
    if on("remove_unnecessary_lock"):
        yield "modify_op_lock_and_record_event_pass"
    yield "multi_devices_check_pass"


_BEFORE = {
    "enable_sequential_execution": "sequential_execution_pass",
    "sync_batch_norm": "sync_batch_norm_pass",
    "fuse_relu_depthwise_conv": "fuse_relu_depthwise_conv_pass",
    "fuse_bn_act_ops": "fuse_bn_act_pass",
    "fuse_elewise_add_act_ops": "fuse_elewise_add_act_pass",
}


def _over_devices(settings: Mapping[str, Any], reducing: bool) -> str:
    if settings["async_mode"]:
        return "async_multi_devices_pass"
    if settings["is_distribution"]:
        return "dist_multi_devices_pass"
    return "reduce_mode_multi_devices_pass" if reducing else "all_reduce_mode_multi_devices_pass"
