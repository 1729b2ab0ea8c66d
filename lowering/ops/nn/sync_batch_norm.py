"""sync_batch_norm: the op that Paddle 2 writes for ``nn.SyncBatchNorm``, in training and in exported models.

On one device it is batch_norm. On several, their batches are normalised as one: see ``lowering.engine.parallel.devices``.
"""

from __future__ import annotations

from lowering.ops.nn.batch_norm import OUTPUTS, batch_norm
from lowering.registry import MASKED, op
from lowering.values import LoDArray


@op(out=OUTPUTS, diff="x scale bias", vendor="use_mkldnn fuse_with_relu", lod={"Y": "x"}, rows=MASKED,
    inplace={"MeanOut": "mean", "VarianceOut": "variance"}, spare="scale bias", infer=batch_norm.infer)  # fmt: skip
def sync_batch_norm(
    x: LoDArray,
    scale,
    bias,
    mean,
    variance,
    momentum_tensor=None,
    *,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_layout: str = "NCHW",
    use_global_stats: bool = False,
    trainable_statistics: bool = False,
):
    """What batch_norm computes, of the batches of all devices."""
    return batch_norm(
        x, scale, bias, mean, variance, momentum_tensor, is_test=is_test, momentum=momentum, epsilon=epsilon,
        data_layout=data_layout, use_global_stats=use_global_stats, trainable_statistics=trainable_statistics,
    )  # fmt: skip


sync_batch_norm.grad_maker(batch_norm.make_grad)


@sync_batch_norm.grad(rows=MASKED)
def _(x: LoDArray, scale, bias, saved_mean, saved_variance, d_y, mean=None, variance=None, reserve_space=None, *,
      epsilon, data_layout, use_global_stats):  # fmt: skip
    assert batch_norm.gradient is not None
    return batch_norm.gradient(
        x, scale, bias, saved_mean, saved_variance, d_y, mean, variance, reserve_space,
        epsilon=epsilon, data_layout=data_layout, use_global_stats=use_global_stats,
    )  # fmt: skip
