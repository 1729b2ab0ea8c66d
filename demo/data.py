"""Real handwritten digits: 1,797 scanned 8x8 images (UCI, Alpaydin and Kaynak) that scikit-learn ships."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

TEST_IMAGES = 360


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Train images [n, 1, 8, 8] in -1..1 and labels [n, 1], then the same of the test set; the split is fixed."""
    bunch = load_digits()
    images = (bunch.images.astype("float32") / 8.0 - 1.0)[:, None]
    labels = bunch.target.astype("int64")[:, None]
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], labels[order]
    return images[TEST_IMAGES:], labels[TEST_IMAGES:], images[:TEST_IMAGES], labels[:TEST_IMAGES]
