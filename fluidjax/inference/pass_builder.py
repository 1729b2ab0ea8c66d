"""The list of passes that AnalysisConfig hands out."""

from __future__ import annotations

from collections.abc import Iterable


class PaddlePassBuilder:
    """A list of names of graph passes, for scripts that edit it; XLA's own passes are not among them.

    Args:
        passes: the names to begin with.
    """

    def __init__(self, passes: Iterable[str]):
        self._passes = list(passes)
        self._analysis: list[str] = []

    def set_passes(self, passes: Iterable[str]) -> None:
        """Replace all names."""
        self._passes = list(passes)

    def append_pass(self, name: str) -> None:
        """Add a name at the end."""
        self._passes.append(name)

    def insert_pass(self, index: int, name: str) -> None:
        """Add a name before the one at ``index``."""
        self._passes.insert(index, name)

    def delete_pass(self, name: str) -> None:
        """Take a name out, wherever it stands; nothing happens where it does not."""
        self._passes = [other for other in self._passes if other != name]

    def append_analysis_pass(self, name: str) -> None:
        """Add a name to those of the analysis."""
        self._analysis.append(name)

    def all_passes(self) -> list[str]:
        """The names, in order."""
        return list(self._passes)

    def analysis_passes(self) -> list[str]:
        """The names of the analysis, in order."""
        return list(self._analysis)

    def turn_on_debug(self) -> None:
        """Changes nothing: ``fluidjax.contrib`` and the debugger draw programs."""

    def debug_string(self) -> str:
        """The names, one a line."""
        return "".join(f"  - {name}\n" for name in self._passes)
