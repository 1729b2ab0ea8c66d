"""The Transformer and DeepFM in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import data
from benchmarks.torch_models import Batch, Compile, tensors, trainer


class DeepFM(nn.Module):
    """A factorisation machine and a network over the same embeddings."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.one = nn.Embedding(data.FEATURES, 1, sparse=sparse)
        self.two = nn.Embedding(data.FEATURES, 10, sparse=sparse)
        sizes = (data.FIELDS * 10, 128, 128, 128)
        deep = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        self.deep = nn.Sequential(*deep, nn.Linear(128, 1))

    def forward(self, batch: Batch) -> torch.Tensor:
        """The loss."""
        first, second = (table(batch["features"]) * batch["values"] for table in (self.one, self.two))
        paired = 0.5 * (second.sum(1) ** 2 - (second**2).sum(1)).sum(1, keepdim=True)
        logit = first.sum(1) + paired + self.deep(second.flatten(1))
        return F.binary_cross_entropy_with_logits(logit, batch["label"])


def deepfm_sgd(compile: Compile) -> Callable[[int], np.ndarray]:
    """DeepFM with SGD, sparse gradients."""
    net = DeepFM(sparse=True)
    return trainer(net, torch.optim.SGD(net.parameters(), 0.01), tensors(data.clicks()), compile)


def deepfm_adam(compile: Compile) -> Callable[[int], np.ndarray]:
    """DeepFM with Adam."""
    net = DeepFM(sparse=False)
    return trainer(net, torch.optim.Adam(net.parameters(), 0.001), tensors(data.clicks()), compile)


class Translator(nn.Module):
    """An encoder and a decoder, without dropout."""

    def __init__(self) -> None:
        super().__init__()
        kind: dict[str, Any] = {"dropout": 0.0, "batch_first": True}
        sizes = (data.WIDTH, data.HEADS, 4 * data.WIDTH)
        self.source, self.target = nn.Embedding(data.WORDS, data.WIDTH), nn.Embedding(data.WORDS, data.WIDTH)
        self.places = nn.Parameter(torch.randn(2, data.LENGTH, data.WIDTH) * 0.05)
        self.encoder = nn.ModuleList([nn.TransformerEncoderLayer(*sizes, **kind) for _ in range(data.LAYERS)])
        self.decoder = nn.ModuleList([nn.TransformerDecoderLayer(*sizes, **kind) for _ in range(data.LAYERS)])
        self.out = nn.Linear(data.WIDTH, data.WORDS)
        self.register_buffer("later", torch.full((data.LENGTH, data.LENGTH), -1e9).triu(1))

    def forward(self, batch: Batch) -> torch.Tensor:
        """The loss."""
        memory = self.source(batch["source"]) + self.places[0]
        state = self.target(batch["target"]) + self.places[1]
        for layer in self.encoder:
            memory = layer(memory)
        for layer in self.decoder:
            state = layer(state, memory, tgt_mask=self.later)
        return F.cross_entropy(self.out(state).flatten(0, 1), batch["words"].flatten())


def transformer(compile: Compile) -> Callable[[int], np.ndarray]:
    """An encoder and a decoder of two layers, width 128 and 4 heads, with Adam."""
    net = Translator()
    return trainer(net, torch.optim.Adam(net.parameters(), 0.001), tensors(data.pairs()), compile)


MODELS = {f.__name__: f for f in (transformer, deepfm_sgd, deepfm_adam)}
