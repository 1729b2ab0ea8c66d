"""Images as arrays [height, width, channels] (blue, green, red): loading, cropping, flipping.

Loading and resizing require OpenCV (``pip install opencv-python-headless``); the rest requires only NumPy.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidjax.base.optional import optional
from fluidjax.files import atomic
from fluidjax.paddle.dataset import archives

__all__ = [
    "load_image_bytes",
    "load_image",
    "resize_short",
    "to_chw",
    "center_crop",
    "random_crop",
    "left_right_flip",
    "simple_transform",
    "load_and_transform",
    "batch_images_from_tar",
]


def _opencv() -> Any:
    return optional("cv2", "paddle.dataset.image needs OpenCV to read and resize pictures", "opencv-python-headless")


def batch_images_from_tar(
    data_file: str, dataset_name: str, img2label: Mapping[str, Any], num_per_batch: int = 1024
) -> str:
    """Pack the labelled images of an archive into pickles of ``num_per_batch``, unless already done.

    Returns the path of a text file that lists them. Each is a dict with 'label' and 'data' (the files' bytes).
    """
    folder = f"{data_file}_batch"
    meta_file = os.path.join(folder, f"{dataset_name}.txt")
    if os.path.exists(meta_file):
        return meta_file
    paths: list[str] = []
    with archives.tar(data_file) as archive:
        members = [m for m in archive.getmembers() if m.name in img2label]
        for start in range(0, len(members), num_per_batch):
            group = members[start : start + num_per_batch]
            files = [archive.extractfile(member) for member in group]
            batch = {
                "label": [img2label[member.name] for member in group],
                "data": [file.read() if file else b"" for file in files],
            }
            paths.append(os.path.abspath(os.path.join(folder, dataset_name, f"batch_{len(paths)}")))
            atomic.write_file(paths[-1], [pickle.dumps(batch, protocol=2)])
    atomic.write_file(meta_file, [("\n".join(paths) + "\n").encode()])
    return meta_file


def load_image_bytes(bytes: bytes, is_color: bool = True) -> np.ndarray:
    """Decode an image from bytes: uint8 [height, width, 3], or [height, width] if not ``is_color``."""
    return _opencv().imdecode(np.frombuffer(bytes, np.uint8), int(is_color))


def load_image(file: str, is_color: bool = True) -> np.ndarray:
    """Load an image from a file: uint8 [height, width, 3], or [height, width] if not ``is_color``."""
    return _opencv().imread(file, int(is_color))


def resize_short(im: np.ndarray, size: int) -> np.ndarray:
    """Resize so that the shorter edge has ``size`` pixels, preserving the aspect ratio (bicubic)."""
    height, width = im.shape[:2]
    new = (size, size * height // width) if height > width else (size * width // height, size)
    cv2 = _opencv()
    return cv2.resize(im, new, interpolation=cv2.INTER_CUBIC)


def to_chw(im: np.ndarray, order: Sequence[int] = (2, 0, 1)) -> np.ndarray:
    """Transpose to [channels, height, width]."""
    if im.ndim != len(order):
        raise AssertionError(f"to_chw expected a picture of {len(order)} axes, received {im.ndim}; pass its order")
    return im.transpose(order)


def _crop(im: np.ndarray, top: int, left: int, size: int) -> np.ndarray:
    return im[top : top + size, left : left + size]


def center_crop(im: np.ndarray, size: int, is_color: bool = True) -> np.ndarray:
    """Crop the central ``size`` x ``size`` pixels."""
    height, width = im.shape[:2]
    return _crop(im, (height - size) // 2, (width - size) // 2, size)


def random_crop(im: np.ndarray, size: int, is_color: bool = True) -> np.ndarray:
    """Crop ``size`` x ``size`` pixels at a random position, drawn with NumPy's global generator."""
    height, width = im.shape[:2]
    top = np.random.randint(0, height - size + 1)
    return _crop(im, top, np.random.randint(0, width - size + 1), size)


def left_right_flip(im: np.ndarray, is_color: bool = True) -> np.ndarray:
    """Mirror the image."""
    return im[:, ::-1]


def simple_transform(
    im: np.ndarray, resize_size: int, crop_size: int, is_train: bool, is_color: bool = True, mean: Any = None
) -> np.ndarray:
    """Resize, crop (at random and possibly mirrored when training, else centrally), transpose, subtract ``mean``.

    Returns float32 [channels, crop_size, crop_size]; ``mean`` has one value per channel, or per element.
    """
    im = resize_short(im, resize_size)
    if is_train:
        im = random_crop(im, crop_size, is_color=is_color)
        if np.random.randint(2) == 0:
            im = left_right_flip(im, is_color)
    else:
        im = center_crop(im, crop_size, is_color=is_color)
    out = (to_chw(im) if im.ndim == 3 else im).astype(np.float32)
    if mean is None:
        return out
    mean = np.array(mean, np.float32)
    return out - (mean[:, None, None] if mean.ndim == 1 and is_color else mean)


def load_and_transform(
    filename: str, resize_size: int, crop_size: int, is_train: bool, is_color: bool = True, mean: Any = None
) -> np.ndarray:
    """``simple_transform`` of an image file."""
    return simple_transform(load_image(filename, is_color), resize_size, crop_size, is_train, is_color, mean)
