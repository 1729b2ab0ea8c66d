"""Compressions written in YAML."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.base.optional import optional
from fluidjax.contrib.slim import distillation, nas, prune, quantization, searcher
from fluidjax.contrib.slim.core import strategy
from lowering.errors import near

__all__ = ["ConfigFactory"]

PLUGINS = ["pruners", "quantizers", "distillers", "strategies", "controllers"]
_ROOMS = (prune, quantization, distillation, searcher, nas, strategy)
_CLASSES = {name: getattr(room, name) for room in _ROOMS for name in room.__all__}
_SETTINGS = ("init_model", "checkpoint_path", "eval_epoch")


class ConfigFactory:
    """The strategies and settings that a YAML file describes.

    The sections "pruners", "quantizers", "distillers", "controllers" and "strategies" name objects, each with its
    ``class`` and the arguments of this class; an argument may be the name of an object above it, and "none" is None.
    "compressor" says ``epoch``, ``strategies``, and maybe ``init_model``, ``checkpoint_path`` and ``eval_epoch``;
    "include" lists other files.

    Args:
        config: the file's path. It is read as plain data: no tags for Python objects.

    Attributes:
        instances: name -> object.
        compressor: the settings of the section of this name, with the strategies themselves.
        version: the file's version.
    """

    def __init__(self, config: str):
        self.instances: dict[str, Any] = {}
        self.compressor: dict[str, Any] = {}
        self.version: int | None = None
        self._parse(config)

    def instance(self, name: str) -> Any:
        """The object of a name, or None."""
        return self.instances.get(name)

    def _parse(self, config: str) -> None:
        yaml = optional("yaml", "a configuration of fluid.contrib.slim is written in YAML", "pyyaml")
        if not os.path.isfile(config):
            raise FileNotFoundError(explain("no configuration", "a YAML file", f"{config!r}", "give its path"))
        with open(config) as file:
            sections = yaml.safe_load(file) or {}
        for key, section in sections.items():
            if key == "version" and self.version is None:
                self.version = int(section)
            elif key in PLUGINS:
                for name, attrs in section.items():
                    self._make(config, name, attrs)
            elif key == "compressor":
                self._settings(config, section)
            elif key == "include":
                for other in section:
                    self._parse(other.strip())

    def _make(self, config: str, name: str, attrs: Mapping[str, Any]) -> None:
        if name in self.instances:
            return
        kind = _CLASSES.get(attrs.get("class", ""))
        if kind is None:
            received, known = str(attrs.get("class")), ", ".join(sorted(_CLASSES))
            todo = f"write {' or '.join(near(received, sorted(_CLASSES), 2)) or 'one of these'}"
            raise ValueError(explain(f"the class of {name!r} in {config}", known, received, todo))
        takes = inspect.signature(kind).parameters
        self.instances[name] = kind(**{key: self._value(attrs[key]) for key in attrs if key in takes})

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.instances.get(v, v) if isinstance(v, str) else v for v in value]
        if not isinstance(value, str):
            return value
        return None if value.lower() == "none" else self.instances.get(value, value)

    def _settings(self, config: str, section: Mapping[str, Any]) -> None:
        self.compressor = {"epoch": section["epoch"], "strategies": []}
        self.compressor.update({key: section[key] for key in _SETTINGS if key in section})
        for name in section.get("strategies", ()):
            if name not in self.instances:
                todo = "name one of them, and describe it above the compressor"
                known = ", ".join(self.instances) or "strategies that are described"
                raise ValueError(explain(f"a strategy of the compressor in {config}", known, repr(name), todo))
            self.compressor["strategies"].append(self.instances[name])
