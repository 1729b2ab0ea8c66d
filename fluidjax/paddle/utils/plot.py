"""Training curves."""

from __future__ import annotations

import os
from typing import Any

from fluidjax.base.optional import optional

__all__ = ["Ploter"]


class PlotData:
    """The points of one curve."""

    def __init__(self) -> None:
        self.step: list[Any] = []
        self.value: list[Any] = []

    def append(self, step: Any, value: Any) -> None:
        """Add the point (step, value)."""
        self.step.append(step)
        self.value.append(value)

    def reset(self) -> None:
        """Remove all points."""
        self.step, self.value = [], []


class Ploter:
    """Named curves in one plot; requires matplotlib, and IPython for display in a notebook.

    The environment variable DISABLE_PLOT=True disables plotting.
    """

    def __init__(self, *args: str) -> None:
        self.__args__ = args
        self.__plot_data__ = {title: PlotData() for title in args}
        self.__disable_plot__ = os.environ.get("DISABLE_PLOT")

    def __plot_is_disabled__(self) -> bool:
        return self.__disable_plot__ == "True"

    def append(self, title: str, step: Any, value: Any) -> None:
        """Add the point (``step``, ``value``) to a curve."""
        if title not in self.__plot_data__:
            raise AssertionError(f"no curve {title!r}; expected one of {list(self.__args__)}; name it in Ploter(...)")
        self.__plot_data__[title].append(step, value)

    def plot(self, path: str | None = None) -> None:
        """Plot the curves to a file, or below the notebook's cell in place of the previous plot."""
        if self.__plot_is_disabled__():
            return
        figure = optional("matplotlib.figure", "paddle.utils.plot draws curves", "matplotlib").Figure()
        axes = figure.subplots()
        for title, data in self.__plot_data__.items():
            if data.step:
                axes.plot(data.step, data.value, label=title)
        axes.legend(loc="upper left")
        if path is not None:
            figure.savefig(path)
            return
        display = optional("IPython.display", "paddle.utils.plot shows curves in a notebook", "ipython")
        display.clear_output(wait=True)
        display.display(figure)

    def reset(self) -> None:
        """Remove all points."""
        for data in self.__plot_data__.values():
            data.reset()
