"""``paddle.metric``: metrics over batches, and layers that compute them for one."""

from fluidjax.layers import accuracy, auc, chunk_eval, cos_sim, mean_iou
from fluidjax.metrics import (
    Accuracy,
    Auc,
    ChunkEvaluator,
    CompositeMetric,
    DetectionMAP,
    EditDistance,
    Precision,
    Recall,
)

__all__ = [
    "Accuracy", "Auc", "ChunkEvaluator", "CompositeMetric", "DetectionMAP", "EditDistance", "Precision", "Recall",
    "accuracy", "auc", "chunk_eval", "cos_sim", "mean_iou",
]  # fmt: skip
