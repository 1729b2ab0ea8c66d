"""What a notebook shows of variables and networks of eager mode."""

from __future__ import annotations

from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax.base.tables import page

dg = fluid.dygraph


class Printer:
    """As much of IPython's as a view needs."""

    def __init__(self) -> None:
        self.shown = ""

    def text(self, text: str) -> None:
        self.shown += text


def text_of(value: Any) -> str:
    printer = Printer()
    value._repr_pretty_(printer, False)
    return printer.shown


def test_a_variable_shows_its_value_and_facts() -> None:
    with dg.guard():
        x = dg.to_variable(np.array([[1.5, -2.0]], "float32"), name="<x>")
        assert text_of(x) == "<x>: [1, 2] float32, no gradient\n[[ 1.5 -2. ]]"
        x.stop_gradient = False
        assert "needs gradient" in text_of(x * 2.0)
        shown = "<div><b>&lt;x&gt;</b>: [1, 2] float32, needs gradient</div><pre>[[ 1.5 -2. ]]</pre>"
        assert x._repr_html_() == page(shown)
        assert "no value yet" in text_of(dg.Layer().create_variable())
        big = dg.to_variable(np.zeros((100, 100), "int64"))
        assert "..." in text_of(big) and "int64" in text_of(big)


def test_a_network_shows_its_tree() -> None:
    class Net(dg.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.fc = dg.Linear(2, 3)
            self.rest = dg.Sequential(dg.BatchNorm(3), dg.Dropout())
            self.w = self.create_parameter([4])
            self.gone = dg.Linear(1, 1)
            self.gone = None

    with dg.guard():
        net = Net()
        assert text_of(net).split("\n") == [
            "Net (net_0): 25 parameters, 6 of them not trained",
            "  w [4]",
            "  fc: Linear (linear_0): 9 parameters",
            "    weight [2, 3], bias [3]",
            "  rest: Sequential (sequential_0): 12 parameters, 6 of them not trained",
            "    0: BatchNorm (batch_norm_0): 12 parameters, 6 of them not trained",
            "      weight [3], bias [3], _mean [3], _variance [3]",
            "    1: Dropout (dropout_0): 0 parameters",
        ]
        html = net._repr_html_()
        assert html.count("<details") == 5 == html.count("</details>")
        assert "<b>fc</b>: Linear (linear_0): 9 parameters" in html and "w [4]" in html
