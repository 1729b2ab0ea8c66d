"""Names missing from newer versions of the packages that Paddle's wheel depended on."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from fluidjax.legacy.later import when_imported

_FILTERS = {"ANTIALIAS": "LANCZOS", "LINEAR": "BILINEAR", "CUBIC": "BICUBIC"}  # went with Pillow 10


def _pillow(image: ModuleType) -> None:
    for old, new in _FILTERS.items():
        vars(image).setdefault(old, getattr(image, new))


def _pillow_fonts(fonts: ModuleType) -> None:
    """``getsize``, with which boxes were labelled, as ``getbbox`` has it."""

    def getsize(font: Any, text: Any, *args: Any, **kwargs: Any) -> tuple[int, int]:
        left, _, right, bottom = font.getbbox(text, *args, **kwargs)
        return right - left, bottom

    for font in (fonts.ImageFont, fonts.FreeTypeFont):
        if not hasattr(font, "getsize"):
            font.getsize = getsize


def _pillow_text(draw: ModuleType) -> None:
    """``textsize``, likewise."""

    def textsize(self: Any, text: Any, font: Any = None, *args: Any, **kwargs: Any) -> tuple[int, int]:
        left, _, right, bottom = self.multiline_textbbox((0, 0), text, font, *args, **kwargs)
        return int(right - left), int(bottom)

    if not hasattr(draw.ImageDraw, "textsize"):
        draw.ImageDraw.textsize = textsize


def _pyyaml(yaml: ModuleType) -> None:
    """``yaml.load(text)`` loads plain objects, as it did with a warning in PyYAML 5; older ones need nothing."""
    load, plain = yaml.load, getattr(yaml, "FullLoader", None)
    if plain is None:
        return

    def load_plain(stream: Any, Loader: Any = plain) -> Any:
        return load(stream, Loader)

    vars(yaml)["load"] = load_plain


_CHANGES = {"PIL.Image": _pillow, "PIL.ImageFont": _pillow_fonts, "PIL.ImageDraw": _pillow_text, "yaml": _pyyaml}


def install() -> None:
    """Restore them in the packages that a script imports."""
    for name, change in _CHANGES.items():
        when_imported(name, change)
