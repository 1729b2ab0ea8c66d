"""Training curves: what is collected, what is drawn, and what is said of bad values."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.drawing import curves as drawing

SVG = "{http://www.w3.org/2000/svg}"


def paths(curves, **attributes):
    root = ElementTree.fromstring(curves._repr_svg_())
    return [p.get("d") for p in root.iter(f"{SVG}path") if attributes.items() <= p.attrib.items()]


def filled(count=3, **values):
    curves = fluid.debugger.Curves()
    for step in range(count):
        curves.add(**{name: value(step) for name, value in values.items()})
    return curves


def test_points_count_their_steps_or_are_told():
    curves = filled(loss=lambda step: np.float32([[step]]))
    curves.add(step=10, loss=7)
    curves.add(loss=8)
    steps, values = curves.series("loss")
    assert steps.tolist() == [0, 1, 2, 10, 11] and values.tolist() == [0, 1, 2, 7, 8]
    assert repr(curves) == "<Curves: loss (5)>" and repr(fluid.debugger.Curves()) == "<Curves: none>"


def test_an_array_of_several_elements_is_refused_and_nothing_is_added():
    curves = fluid.debugger.Curves()
    with pytest.raises(ValueError, match=r"'loss'\n.*\n.*\[2\]\n.*pass value.mean"):
        curves.add(accuracy=1, loss=[1, 2])
    assert repr(curves) == "<Curves: none>"


def test_each_curve_has_a_panel_with_a_line_as_long_as_its_points(tmp_path):
    curves = filled(5, loss=lambda step: -step, accuracy=lambda step: step)
    loss, accuracy = paths(curves, stroke=drawing._LINE)
    assert loss.count("L") == accuracy.count("L") == 4
    heights = [float(point.split()[1]) for point in loss[1:].split("L")]
    assert heights == sorted(heights)  # falling values go down, where y grows
    assert not paths(curves, fill=drawing._BAND)
    assert (tmp_path / "x.svg").read_text() if curves.save(str(tmp_path / "x.svg")) else False


def test_values_that_are_no_numbers_are_gaps_with_a_mark():
    curves = filled(7, loss=lambda step: [1, 2, np.nan, 4, np.inf, np.nan, 3][step])
    assert [line.count("L") for line in paths(curves, stroke=drawing._LINE)] == [1, 1, 1]
    assert len(paths(curves, stroke=drawing._BAD)) == 3
    assert str(curves) == "loss  3 at step 6, least 1 at step 0, largest 4 at step 3"
    assert str(filled(2, loss=lambda _: np.nan)) == "loss  nan at step 1"


def test_a_long_curve_is_means_in_a_band():
    curves = filled(3000, loss=lambda step: step % 7)
    (line,), (band,) = paths(curves, stroke=drawing._LINE), paths(curves, fill=drawing._BAND)
    assert line.count("L") == drawing._POINTS - 1 and band.count("L") == 2 * drawing._POINTS - 1
    assert len(curves._repr_svg_()) < 40_000


@pytest.mark.parametrize("values", [[5.0], [5.0, 5.0], [0.0], [1e-30, 2e-30], [-1e30, 1e30], [np.nan], []])
def test_any_values_can_be_drawn(values):
    curves = fluid.debugger.Curves()
    for value in values:
        curves.add(loss=value)
    root = ElementTree.fromstring(curves._repr_svg_())
    assert not any("nan" in (p.get("d") or "") for p in root.iter(f"{SVG}path"))
    assert ("loss" in [text.text for text in root.iter(f"{SVG}text")]) == bool(values)
