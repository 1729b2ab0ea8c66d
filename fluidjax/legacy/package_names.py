"""Names missing from newer versions of the packages that Paddle's wheel depended on."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

_FILTERS = {"ANTIALIAS": "LANCZOS", "LINEAR": "BILINEAR", "CUBIC": "BICUBIC"}  # went with Pillow 10


def _pillow(image: ModuleType) -> None:
    for old, new in _FILTERS.items():
        vars(image).setdefault(old, getattr(image, new))


def _pillow_text(draw: ModuleType) -> None:
    """``textsize``, with which boxes were labelled, as ``getbbox`` has it; also of fonts."""

    def getsize(font: Any, text: Any, *args: Any, **kwargs: Any) -> tuple[int, int]:
        left, _, right, bottom = font.getbbox(text, *args, **kwargs)
        return right - left, bottom

    def textsize(self: Any, text: Any, font: Any = None, *args: Any, **kwargs: Any) -> tuple[int, int]:
        left, _, right, bottom = self.multiline_textbbox((0, 0), text, font, *args, **kwargs)
        return int(right - left), int(bottom)

    fonts = importlib.import_module("PIL.ImageFont")
    for owner, name, function in (
        (draw.ImageDraw, "textsize", textsize),
        (fonts.ImageFont, "getsize", getsize),
        (fonts.FreeTypeFont, "getsize", getsize),
    ):
        if not hasattr(owner, name):
            setattr(owner, name, function)


def _pyyaml(yaml: ModuleType) -> None:
    """``yaml.load(text)`` loads plain objects, as it did with a warning in PyYAML 5; older ones need nothing."""
    load, plain = yaml.load, getattr(yaml, "FullLoader", None)
    if plain is None:
        return

    def load_plain(stream: Any, Loader: Any = plain) -> Any:
        return load(stream, Loader)

    vars(yaml)["load"] = load_plain


_CHANGES = {"PIL.Image": _pillow, "PIL.ImageDraw": _pillow_text, "yaml": _pyyaml}
_changed: set[str] = set()


def install() -> None:
    """Restore them in the packages that are installed."""
    for name, change in _CHANGES.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if name not in _changed:
            change(module)
            _changed.add(name)
