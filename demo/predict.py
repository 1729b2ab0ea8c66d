"""``python -m demo.predict FOLDER``: load the saved model in a fresh process, predict, and draw what it saw."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np

import fluidjax as fluid
from demo.data import digits

matplotlib.use("Agg")
COLUMNS, ROWS = 8, 5


def predict(folder: Path, images: np.ndarray) -> np.ndarray:
    """The digit that the saved model sees in each image."""
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, targets = fluid.io.load_inference_model(str(folder), exe)
        (scores,) = exe.run(program, feed={feeds[0]: images}, fetch_list=targets)
    return scores.argmax(axis=1)


def draw(images: np.ndarray, predicted: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """A sheet of digits with their predictions; wrong ones are red."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(ROWS, COLUMNS, figsize=(COLUMNS, ROWS * 1.25))
    for axis, image, guess, label in zip(axes.flat, images[:, 0], predicted, labels[:, 0], strict=False):
        axis.imshow(image, cmap="gray_r")
        axis.set_title(str(guess), color="black" if guess == label else "red")
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main() -> None:
    """Predict the test images and leave the picture beside the model."""
    folder = Path(sys.argv[1])
    _, _, images, labels = digits()
    predicted = predict(folder, images)
    picture = folder.parent / "digits.png"
    draw(images, predicted, labels, picture)
    right = int(np.sum(predicted == labels[:, 0]))
    print(f"loaded {folder} in a fresh process: {right} of {len(labels)} test digits right; drawn in {picture}")


if __name__ == "__main__":
    main()
