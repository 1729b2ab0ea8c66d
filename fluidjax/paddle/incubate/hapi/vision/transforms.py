"""Random changes of the colours of pictures [height, width, 3], in the order blue, green, red.

Each draws its strength from NumPy's global generator, keeps the picture's dtype, and cuts values to 0 to 255.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from fluidjax.base.optional import optional

__all__ = ["BrightnessTransform", "ColorJitter", "ContrastTransform", "HueTransform", "SaturationTransform"]

_GREY = np.array([0.114, 0.587, 0.299], np.float32)  # what blue, green and red add to the grey of a pixel


def _strength(value: float, name: str, most: float = np.inf) -> float:
    if not 0 <= value <= most:
        bound = "non-negative" if most == np.inf else f"in [0.0, {most}]"
        raise ValueError(f"{name} value should be {bound}; received {value!r}")
    return value


class _Blend:
    """a * picture + (1 - a) * another one, with a of [max(0, 1 - value), 1 + value]; 0 leaves pictures alone."""

    name = ""

    def __init__(self, value: float):
        self.value = _strength(value, self.name)

    def __call__(self, img: np.ndarray) -> np.ndarray:
        """The changed picture."""
        if self.value == 0:
            return img
        share = np.random.uniform(max(0, 1 - self.value), 1 + self.value)
        picture = img.astype(np.float32)
        return (picture * share + self._other(picture) * (1 - share)).clip(0, 255).astype(img.dtype)

    def _other(self, picture: np.ndarray) -> Any:
        raise NotImplementedError


class BrightnessTransform(_Blend):
    """Blend with black. Raises ValueError for a negative value."""

    name = "brightness"

    def _other(self, picture: np.ndarray) -> float:
        return 0.0


class ContrastTransform(_Blend):
    """Blend with the picture's mean grey. Raises ValueError for a negative value."""

    name = "contrast"

    def _other(self, picture: np.ndarray) -> Any:
        return (picture @ _GREY).mean()


class SaturationTransform(_Blend):
    """Blend with the grey picture. Raises ValueError for a negative value."""

    name = "saturation"

    def _other(self, picture: np.ndarray) -> np.ndarray:
        return (picture @ _GREY)[..., None]


class HueTransform:
    """Turn the hues of a picture of whole numbers by up to ``value`` of the circle of colours, 0 to 0.5; needs OpenCV.

    Raises ValueError for another value.
    """

    def __init__(self, value: float):
        self.value = _strength(value, "hue", 0.5)

    def __call__(self, img: np.ndarray) -> np.ndarray:
        """The changed picture."""
        if self.value == 0:
            return img
        cv2 = optional("cv2", "HueTransform needs OpenCV to convert colours", "opencv-python-headless")
        hsv = cv2.cvtColor(img.astype(np.uint8), cv2.COLOR_BGR2HSV_FULL)
        hsv[..., 0] += np.uint8(int(np.random.uniform(-self.value, self.value) * 255) % 256)
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR_FULL).astype(img.dtype)


class ColorJitter:
    """Change brightness, contrast, saturation and hue, those that are not 0, in an order drawn once."""

    def __init__(self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0):
        kinds: tuple[tuple[Callable[[float], Any], float], ...] = (
            (BrightnessTransform, brightness),
            (ContrastTransform, contrast),
            (SaturationTransform, saturation),
            (HueTransform, hue),
        )
        self.transforms = [kind(value) for kind, value in kinds if value != 0]
        random.shuffle(self.transforms)

    def __call__(self, img: np.ndarray) -> np.ndarray:
        """The changed picture."""
        for transform in self.transforms:
            img = transform(img)
        return img
