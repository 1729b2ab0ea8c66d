"""Names missing from newer versions of the packages that Paddle's wheel depended on."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

_FILTERS = {"ANTIALIAS": "LANCZOS", "LINEAR": "BILINEAR", "CUBIC": "BICUBIC"}  # went with Pillow 10


def _pillow(image: ModuleType) -> None:
    for old, new in _FILTERS.items():
        vars(image).setdefault(old, getattr(image, new))


def _pyyaml(yaml: ModuleType) -> None:
    """``yaml.load(text)`` loads plain objects, as it did with a warning in PyYAML 5."""
    load = yaml.load

    def load_plain(stream: Any, Loader: Any = yaml.FullLoader) -> Any:
        return load(stream, Loader)

    vars(yaml)["load"] = load_plain


_CHANGES = {"PIL.Image": _pillow, "yaml": _pyyaml}
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
