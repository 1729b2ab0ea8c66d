"""Saves a small model as Paddle 2.6 does, and what it computes: ``python -m tests.newer.record_model FOLDER``."""

from __future__ import annotations

import sys

import numpy as np
import paddle
from paddle import nn


class Net(nn.Layer):
    """Convolution, norm, activation, resize, pooling, a recurrent layer over columns, and a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2D(3, 4, 3, padding=1), nn.BatchNorm2D(4)
        self.lstm, self.out = nn.LSTM(4, 5, direction="bidirect"), nn.Linear(10, 6)

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        """Rows of probabilities, one for each column of the image."""
        x = nn.functional.hardswish(self.norm(self.conv(image)))
        x = nn.functional.interpolate(x, scale_factor=2, mode="nearest")
        x = nn.functional.adaptive_avg_pool2d(x, [1, 8]).squeeze(2).transpose([0, 2, 1])
        x, _ = self.lstm(x)
        return nn.functional.softmax(self.out(x), axis=-1)


def main() -> None:
    """Save the model and its outputs for one batch."""
    paddle.seed(3)
    net = Net()
    net.eval()
    spec = paddle.static.InputSpec([None, 3, 8, None], "float32", "image")
    paddle.jit.save(net, f"{sys.argv[1]}/inference", [spec])
    image = np.round(np.random.RandomState(0).uniform(-1, 1, (2, 3, 8, 12)), 2).astype("float32")
    np.savez_compressed(f"{sys.argv[1]}/recorded.npz", image=image, out=net(paddle.to_tensor(image)).numpy())


if __name__ == "__main__":
    main()
