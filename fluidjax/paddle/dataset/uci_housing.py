"""Boston housing prices: 13 features of a district and the median price of its homes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from fluidjax.base.optional import optional
from fluidjax.paddle.dataset import archives, common

__all__ = ["train", "test"]

URL = "http://paddlemodels.bj.bcebos.com/uci_housing/housing.data"
MD5 = "d4accdce7a25600298819f8e28e8d593"
FLUID_URL_MODEL = "https://github.com/PaddlePaddle/book/raw/develop/01.fit_a_line/fluid/fit_a_line.fluid.tar"
FLUID_MD5_MODEL = "6e6dd637ccd5993961f68bfbde46090b"
feature_names = "CRIM ZN INDUS CHAS NOX RM AGE DIS RAD TAX PTRATIO B LSTAT".split()

UCI_TRAIN_DATA: np.ndarray | None = None
UCI_TEST_DATA: np.ndarray | None = None

Reader = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]


def feature_range(maximums: np.ndarray, minimums: np.ndarray) -> None:
    """Plot the range of each feature to ``image/ranges.png`` (requires matplotlib)."""
    drawing = optional("matplotlib.figure", "paddle.dataset.uci_housing draws the ranges of features", "matplotlib")
    figure = drawing.Figure(figsize=(10, 6))
    axes = figure.subplots()
    axes.bar(range(len(maximums)), maximums - minimums, color="r", align="center")
    axes.set_title("feature scale")
    axes.set_xticks(range(len(maximums)), feature_names[: len(maximums)])
    os.makedirs("image", exist_ok=True)
    figure.savefig("image/ranges.png", dpi=48)


def load_data(filename: str, feature_num: int = 14, ratio: float = 0.8) -> None:
    """Load the table once; features become (x - mean) / (max - min). The first ``ratio`` of the rows is for training.

    Raises FileFormatError if the file is not a table of numbers, or a feature is the same in all rows.
    Fluid also plots the features' ranges to the working directory; call ``feature_range`` for that.
    """
    global UCI_TRAIN_DATA, UCI_TEST_DATA
    if UCI_TRAIN_DATA is not None and UCI_TEST_DATA is not None:
        return
    with archives.sound(filename), open(filename, "rb") as file, np.errstate(all="raise"):
        data = np.array(file.read().split(), float).reshape(-1, feature_num)
        if not data.size:
            raise EOFError("no rows")
        features = data[:, :-1]
        features[:] = (features - features.mean(axis=0)) / (features.max(axis=0) - features.min(axis=0))
    offset = int(data.shape[0] * ratio)
    UCI_TRAIN_DATA, UCI_TEST_DATA = data[:offset], data[offset:]


def _rows(which: str) -> Reader:
    load_data(common.download(URL, "uci_housing", MD5))

    def reader() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for row in globals()[which]:
            yield row[:-1], row[-1:]

    return reader


def train() -> Reader:
    """404 districts: (float64 [13], float64 [1])."""
    return _rows("UCI_TRAIN_DATA")


def test() -> Reader:
    """102 districts: (float64 [13], float64 [1])."""
    return _rows("UCI_TEST_DATA")


def fluid_model() -> str:
    """A directory, new for each call, with a trained inference model."""
    path = common.download(FLUID_URL_MODEL, "uci_housing", FLUID_MD5_MODEL, "fit_a_line.fluid.tar")
    folder = tempfile.mkdtemp()
    with archives.tar(path) as archive:
        archive.extractall(folder, filter="data")
    return folder


def predict_reader() -> tuple[np.ndarray]:
    """The features of the first test district, in a tuple."""
    load_data(common.download(URL, "uci_housing", MD5))
    assert UCI_TEST_DATA is not None
    return (UCI_TEST_DATA[0][:-1],)


def fetch() -> None:
    """Download the table."""
    common.download(URL, "uci_housing", MD5)
