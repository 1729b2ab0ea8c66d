"""Running statistics for click-through rate predictions."""

from __future__ import annotations

from fluidjax.framework import Variable
from fluidjax.initializer import Constant
from fluidjax.layer_helper import LayerHelper

__all__ = ["ctr_metric_bundle"]

_SUMS = 6


class _Bundle:
    """Appends the ops of the bundle: batch values, each added to a persistent total."""

    def __init__(self) -> None:
        self.helper = LayerHelper("ctr_metric_bundle")

    def variables(self, count: int, size: int, persistable: bool = False) -> list[Variable]:
        make = self.helper.create_global_variable
        return [make(persistable=persistable, dtype="float32", shape=[size]) for _ in range(count)]

    def start_at_zero(self, var: Variable) -> None:
        self.helper.set_variable_initializer(var, Constant(value=0.0, force_cpu=True))

    def unary(self, op_type: str, x: Variable, out: Variable) -> None:
        self.helper.append_op(type=op_type, inputs={"X": [x]}, outputs={"Out": [out]})

    def accumulate(self, op_type: str, x: Variable, batch: Variable, total: Variable) -> None:
        """Compute ``batch = op(x)`` and add it to ``total``."""
        self.unary(op_type, x, batch)
        self.helper.append_op(type="elementwise_add", inputs={"X": [batch], "Y": [total]}, outputs={"Out": [total]})


def ctr_metric_bundle(input: Variable, label: Variable) -> tuple[Variable, ...]:
    """Totals over all batches, from which MAE, RMSE, predicted CTR and q are obtained by division.

    Args:
        input: float32 predictions [N, 1].
        label: float32 labels [N, 1], 0 or 1.

    Returns:
        Six persistable float32 [1] variables: sums of (input - label)^2, |input - label|, input, sigmoid(input),
        label, and the number of rows.

    Raises:
        ValueError: ``input`` and ``label`` differ in shape.
    """
    if tuple(input.shape) != tuple(label.shape):
        raise ValueError(
            f"ctr_metric_bundle compares input with label row by row, but input {input.name!r} has shape {input.shape}"
            f" and label {label.name!r} has {label.shape}. Reshape one of them."
        )
    bundle = _Bundle()
    # The order in which the variables are made and zeroed decides their names and the startup program.
    abserr, sqrerr, prob, q, positives, rows = bundle.variables(_SUMS, 1, persistable=True)
    difference, sigmoid, ones = bundle.variables(3, -1)
    b_prob, b_abserr, b_sqrerr, b_q, b_positives, b_rows = bundle.variables(_SUMS, 1)
    zeroed = [abserr, b_abserr, sqrerr, b_sqrerr, prob, b_prob, q, b_q, b_positives, b_rows, positives, rows]
    for var in zeroed:
        bundle.start_at_zero(var)
    bundle.helper.append_op(type="elementwise_sub", inputs={"X": [input], "Y": [label]}, outputs={"Out": [difference]})
    bundle.accumulate("squared_l2_norm", difference, b_sqrerr, sqrerr)
    bundle.accumulate("l1_norm", difference, b_abserr, abserr)
    bundle.accumulate("reduce_sum", input, b_prob, prob)
    bundle.unary("sigmoid", input, sigmoid)
    bundle.accumulate("reduce_sum", sigmoid, b_q, q)
    bundle.accumulate("reduce_sum", label, b_positives, positives)
    bundle.helper.append_op(
        type="fill_constant_batch_size_like",
        inputs={"Input": label},
        outputs={"Out": [ones]},
        attrs={"shape": [-1, 1], "dtype": ones.dtype, "value": 1.0},
    )
    bundle.accumulate("reduce_sum", ones, b_rows, rows)
    return sqrerr, abserr, prob, q, positives, rows
