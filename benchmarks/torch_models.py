"""The same steps in PyTorch: eager modules, or what ``torch.compile`` makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import data, fluid_sequences

Batch = dict[str, Any]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Compile = Callable[[nn.Module], Callable[..., torch.Tensor]]


def trainer(net: nn.Module, optimizer: Any, batches: list[Batch], compile: Compile) -> Callable[[int], np.ndarray]:
    """A step function over NumPy batches; ``net(batch)`` is the loss."""
    loss_of = compile(net)

    def step(i: int) -> np.ndarray:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(_placed(batches[i % len(batches)]))
        loss.backward()
        optimizer.step()
        return loss.detach().cpu().numpy()

    return step


def _placed(batch: Batch) -> Batch:
    """The batch where the network is: as for the other peers, a step brings its data there."""
    if DEVICE == "cpu":
        return batch
    return {n: [a.to(DEVICE) for a in t] if isinstance(t, list) else t.to(DEVICE) for n, t in batch.items()}


def tensors(batches: list[Batch]) -> list[Batch]:
    """The batches as tensors that share their memory."""
    return [{name: torch.from_numpy(array) for name, array in batch.items()} for batch in batches]


class Classifier(nn.Module):
    """Mean cross entropy of what ``body`` makes of an input, named ``source``, against the labels."""

    def __init__(self, body: nn.Module, source: str = "image", label: str = "label"):
        super().__init__()
        self.body, self.source, self.label = body, source, label

    def forward(self, batch: Batch) -> torch.Tensor:
        """The loss."""
        return F.cross_entropy(self.body(batch[self.source]), batch[self.label][:, 0])


class Line(nn.Module):
    """Mean squared error of a linear model."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(13, 1)

    def forward(self, batch: Batch) -> torch.Tensor:
        """The loss."""
        return F.mse_loss(self.fc(batch["x"]), batch["y"])


def fit_a_line(compile: Compile) -> Callable[[int], np.ndarray]:
    """Linear regression with SGD."""
    net = Line()
    return trainer(net, torch.optim.SGD(net.parameters(), 0.01), tensors(data.fit_a_line()), compile)


def mlp(compile: Compile) -> Callable[[int], np.ndarray]:
    """784-200-200-10 with Adam."""
    body = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
    net = Classifier(body)
    return trainer(net, torch.optim.Adam(net.parameters(), 0.001), tensors(data.mlp()), compile)


def lenet(compile: Compile) -> Callable[[int], np.ndarray]:
    """Two convolution-pool pairs with Adam."""
    pairs = [nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)]
    net = Classifier(nn.Sequential(*pairs, nn.Flatten(), nn.Linear(50 * 16, 10)))
    return trainer(net, torch.optim.Adam(net.parameters(), 0.001), tensors(data.lenet()), compile)


def _conv_bn(inner: int, out: int, size: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inner, out, size, stride, (size - 1) // 2, bias=False), nn.BatchNorm2d(out))


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, inner: int, out: int, stride: int):
        super().__init__()
        self.first, self.second = _conv_bn(inner, out, 3, stride), _conv_bn(out, out, 3, 1)
        self.short = _conv_bn(inner, out, 1, 2) if stride == 2 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the block makes of images."""
        return torch.relu(self.short(x) + self.second(torch.relu(self.first(x))))


def resnet20(compile: Compile) -> Callable[[int], np.ndarray]:
    """ResNet-20 with Momentum."""
    body: list[nn.Module] = [_conv_bn(3, 16, 3, 1), nn.ReLU()]
    inner = 16
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(3):
            body.append(Block(inner, filters, 2 if stage and not block else 1))
            inner = filters
    net = Classifier(nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)))
    return trainer(net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9), tensors(data.resnet20()), compile)


class Word2vec(nn.Module):
    """N-gram language model."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(data.VOCABULARY, 32, sparse=sparse)
        self.a, self.b = nn.Linear(data.CONTEXT * 32, 256), nn.Linear(256, data.TARGETS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """The logits of the next word."""
        return self.b(torch.sigmoid(self.a(self.table(words).flatten(1))))


def _word2vec(compile: Compile, *, sparse: bool) -> Callable[[int], np.ndarray]:
    net = Classifier(Word2vec(sparse=sparse), "words", "target")
    return trainer(net, torch.optim.SGD(net.parameters(), 0.1), tensors(data.word2vec()), compile)


def word2vec_dense(compile: Compile) -> Callable[[int], np.ndarray]:
    """N-gram language model, dense embedding gradient."""
    return _word2vec(compile, sparse=False)


def word2vec_sparse(compile: Compile) -> Callable[[int], np.ndarray]:
    """N-gram language model; only the rows that were looked up are updated."""
    return _word2vec(compile, sparse=True)


class Reader(nn.Module):
    """The largest of a recurrent network's states over each sentence, classified."""

    def __init__(self, kind: Any, hidden: int):
        super().__init__()
        self.table = nn.Embedding(data.WORDS, 128)
        self.cell, self.fc = kind(128, hidden), nn.Linear(hidden, 2)

    def forward(self, batch: Batch) -> torch.Tensor:
        """The loss."""
        rows = nn.utils.rnn.pack_sequence([self.table(w) for w in batch["words"]], enforce_sorted=False)
        states, lengths = nn.utils.rnn.pad_packed_sequence(self.cell(rows)[0], padding_value=-np.inf)
        return F.cross_entropy(self.fc(states.max(0).values), batch["label"][:, 0])


def _reader(compile: Compile, kind: Any, hidden: int) -> Callable[[int], np.ndarray]:
    batches = [
        {"words": [torch.from_numpy(w) for w in batch["words"]], "label": torch.from_numpy(batch["label"])}
        for batch in data.sentences(fluid_sequences.STREAM)
    ]
    net = Reader(kind, hidden)
    return trainer(net, torch.optim.Adam(net.parameters(), 0.001), batches, compile)


def lstm_127(compile: Compile) -> Callable[[int], np.ndarray]:
    """LSTM sentiment classifier, hidden size 127."""
    return _reader(compile, nn.LSTM, 127)


def lstm_256(compile: Compile) -> Callable[[int], np.ndarray]:
    """LSTM sentiment classifier, hidden size 256."""
    return _reader(compile, nn.LSTM, 256)


def gru_256(compile: Compile) -> Callable[[int], np.ndarray]:
    """GRU sentiment classifier, hidden size 256."""
    return _reader(compile, nn.GRU, 256)


DENSE = {f.__name__: f for f in (fit_a_line, mlp, lenet, resnet20, word2vec_dense, word2vec_sparse)}
RAGGED = {f.__name__: f for f in (lstm_127, lstm_256, gru_256)}
