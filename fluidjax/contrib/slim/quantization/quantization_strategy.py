"""Training with rounded weights and activations, and writing the network that comes of it."""

from __future__ import annotations

from collections.abc import Sequence

from fluidjax import io
from fluidjax.contrib.slim.core.context import Context
from fluidjax.contrib.slim.core.strategy import Strategy
from fluidjax.contrib.slim.quantization.freezing import QuantizationFreezePass
from fluidjax.contrib.slim.quantization.int8 import ConvertToInt8Pass, TransformForMobilePass
from fluidjax.contrib.slim.quantization.transform import QuantizationTransformPass
from fluidjax.executor import Executor, scope_guard
from fluidjax.framework import Program
from fluidjax.ir.graph import Graph
from fluidjax.ir.ir_graph import IrGraph

__all__ = ["QuantizationStrategy"]

_EVALUATED = "quantization_test_ir_graph_backup"


class QuantizationStrategy(Strategy):
    """From ``start_epoch`` on, what is trained and evaluated rounds its inputs (QuantizationTransformPass); in
    ``end_epoch`` the weights are rounded (QuantizationFreezePass) and the network is written.

    Args:
        start_epoch, end_epoch: see above.
        float_model_save_path: the folder for rounded weights held as floats; None for none.
        int8_model_save_path: the folder for weights held as int8; None for none.
        mobile_model_save_path: the folder for the ops of Paddle Mobile and int8 weights; None for none.
        activation_bits, weight_bits: of the rounding.
        activation_quantize_type, weight_quantize_type: see QuantizationTransformPass.
        save_in_nodes, save_out_nodes: the variables between which the network is written; None: the evaluation's.
    """

    def __init__(
        self,
        start_epoch: int = 0,
        end_epoch: int = 0,
        float_model_save_path: str | None = None,
        mobile_model_save_path: str | None = None,
        int8_model_save_path: str | None = None,
        activation_bits: int = 8,
        weight_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        save_in_nodes: Sequence[str] | None = None,
        save_out_nodes: Sequence[str] | None = None,
    ):
        super().__init__(start_epoch, end_epoch)
        self.float_model_save_path = float_model_save_path
        self.mobile_model_save_path = mobile_model_save_path
        self.int8_model_save_path = int8_model_save_path
        self.activation_bits = activation_bits
        self.weight_bits = weight_bits
        self.activation_quantize_type = activation_quantize_type
        self.weight_quantize_type = weight_quantize_type
        self.save_in_nodes = save_in_nodes
        self.save_out_nodes = save_out_nodes

    def restore_from_checkpoint(self, context: Context) -> None:
        """Round again, if the checkpoint is later than ``start_epoch``."""
        if context.epoch_id > self.start_epoch:
            self._transform(context)

    def on_epoch_begin(self, context: Context) -> None:
        """Begin to round, in ``start_epoch``."""
        if context.epoch_id == self.start_epoch:
            self._transform(context)

    def on_epoch_end(self, context: Context) -> None:
        """Round the weights and write the network, in ``end_epoch``."""
        if context.epoch_id == self.end_epoch:
            graph = context.get(_EVALUATED)
            QuantizationFreezePass(
                scope=context.scope,
                place=context.place,
                weight_bits=self.weight_bits,
                activation_bits=self.activation_bits,
                weight_quantize_type=self.weight_quantize_type,
            ).apply(graph)
            context.eval_graph.program = graph.to_program()
            self._save(context, graph)

    def _transform(self, context: Context) -> None:
        trained = IrGraph(Graph(context.optimize_graph.program.clone().desc), for_test=False)
        evaluated = IrGraph(Graph(context.eval_graph.program.clone().desc), for_test=True)
        rounding = QuantizationTransformPass(
            scope=context.scope,
            place=context.place,
            weight_bits=self.weight_bits,
            activation_bits=self.activation_bits,
            activation_quantize_type=self.activation_quantize_type,
            weight_quantize_type=self.weight_quantize_type,
        )
        rounding.apply(trained)
        rounding.apply(evaluated)
        self._keep_new(context, trained)
        context.optimize_graph.program = trained.to_program()
        context.optimize_graph.compile()
        context.eval_graph.program = evaluated.to_program()
        context.put(_EVALUATED, evaluated)

    def _keep_new(self, context: Context, graph: IrGraph) -> None:
        """Have checkpoints hold what the rounding keeps between steps."""
        kept, block = context.optimize_graph.persistables, Program().global_block()
        for node in graph.all_persistable_nodes():
            desc = node.var()
            if desc is not None and node.name() not in kept:
                kept[node.name()] = block.create_var(
                    name=node.name(),
                    shape=desc.shape(),
                    dtype=desc.dtype(),
                    type=desc.type(),
                    lod_level=desc.lod_level(),
                    persistable=True,
                )

    def _save(self, context: Context, graph: IrGraph) -> None:
        """Each form that has a folder; the later ones are made from the earlier."""
        self._write(context, graph, self.float_model_save_path)
        if self.int8_model_save_path or self.mobile_model_save_path:
            ConvertToInt8Pass(scope=context.scope, place=context.place).apply(graph)
            self._write(context, graph, self.int8_model_save_path)
        if self.mobile_model_save_path:
            TransformForMobilePass().apply(graph)
            self._write(context, graph, self.mobile_model_save_path)

    def _write(self, context: Context, graph: IrGraph, folder: str | None) -> None:
        if not folder:
            return
        program, evaluated = graph.to_program(), context.eval_graph
        fetches = self.save_out_nodes or list(evaluated.out_nodes.values())
        with scope_guard(context.scope):
            io.save_inference_model(
                folder,
                list(self.save_in_nodes or evaluated.in_nodes.values()),
                [program.global_block().var(name) for name in fetches],
                Executor(context.place),
                main_program=program,
                model_filename="model",
                params_filename="weights",
            )
