"""Programs as pictures: what becomes a box, where boxes go, and that the SVG is well formed."""

from __future__ import annotations

import random
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax.command import cli
from fluidjax.drawing.graph import BLOCKS, DATA, LEARNS, PLAIN, RESULT, graph
from fluidjax.drawing.layout import layout

L = fluid.layers


@pytest.fixture
def main():
    """The program that layers write to."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield fluid.default_main_program()


def boxes(program, block=0):
    return [(node.role, [line.name for line in node.lines], node.before) for node in graph(program.block(block))]


def texts(svg):
    root = ElementTree.fromstring(svg)
    return [element.text for element in root.iter() if element.tag.endswith("}text")]


def branches():
    """A network with a residual connection, trained."""
    x = fluid.data("x", [None, 8])
    h = L.fc(x, 8, act="relu")
    y = L.elementwise_add(h, L.dropout(L.fc(h, 8), 0.1))
    loss = L.mean(L.fc(y, 1))
    fluid.optimizer.SGD(0.1).minimize(loss)


def test_layers_are_boxes(main):
    branches()
    assert boxes(main) == [
        (DATA, ["x"], []),
        (LEARNS, ["fc_0"], [0]),
        (LEARNS, ["fc_1", "dropout_0"], [1]),
        (RESULT, ["elementwise_add_0", "fc_2", "mean_0"], [1, 2]),
    ]
    lines = graph(main.global_block())[1].lines
    assert (lines[0].ops, lines[0].shape) == ("mul + elementwise_add + relu", "[?, 8]")
    assert "h = L.fc(x, 8" in lines[0].tip and "fc_0.w_0 [8, 8]: 64" in lines[0].tip


def test_a_loop_is_drawn_below(main):
    i, n = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 3)
    L.mean(L.while_loop(lambda i, x: L.less_than(i, n), lambda i, x: [L.increment(i), L.fc(x, 4)],
                        [i, fluid.data("x", [2, 4])])[1])  # fmt: skip
    assert (BLOCKS, ["while"]) in [(role, names) for role, names, _ in boxes(main)]
    inner = boxes(main, 1)
    assert (RESULT, ["fc_0", "x"]) in [(role, names) for role, names, _ in inner], "what it writes is the loop's state"
    assert any(text.startswith("block 1, run by while (op ") for text in texts(fluid.debugger.draw(main).svg))


def test_the_picture(main, tmp_path):
    branches()
    drawing = fluid.debugger.draw(main, str(tmp_path / "net.svg"))
    assert (tmp_path / "net.svg").read_text() == drawing.svg == drawing._repr_svg_()
    assert texts(drawing.svg)[0] == fluid.framework.listing.size_text(main)
    assert {"x", "fc_0", "[?, 8]", PLAIN} <= set(texts(drawing.svg))


def test_hostile_names_are_text(main):
    main.global_block().create_var(name="<a>&\x1b[2J", shape=[-1, 2], dtype="float32")
    L.relu(main.global_block().var("<a>&\x1b[2J"))
    assert "<a>&\\033[2J" in texts(fluid.debugger.draw(main).svg)


def test_an_empty_program_has_a_picture(main):
    assert texts(fluid.debugger.draw(main).svg)[0].startswith("0 ops")


def test_command(main, tmp_path, capsys):
    branches()
    (tmp_path / "program").write_bytes(main.desc.serialize_to_string())
    assert cli.main(["draw", str(tmp_path / "program"), "-o", str(tmp_path / "a.svg")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "a.svg")
    assert "fc_2" in texts((tmp_path / "a.svg").read_text())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 25))
def test_boxes_do_not_overlap_and_edges_go_down(seed, count):
    draws = random.Random(seed)
    sizes = [(draws.randint(20, 200), draws.randint(10, 60)) for _ in range(count)]
    edges = sorted({(draws.randrange(end), end) for end in range(1, count) for _ in range(draws.randint(0, 3))})
    placed = layout(sizes, edges)
    spans = [(x - w / 2, x + w / 2, y - h / 2, y + h / 2) for (x, y), (w, h) in zip(placed.centres, sizes, strict=True)]
    for i, (left, right, top, bottom) in enumerate(spans):
        assert left >= -1e-6 and right <= placed.width + 1e-6 and top >= 0 and bottom <= placed.height
        for other in spans[:i]:
            assert right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
    for (begin, end), route in zip(edges, placed.routes, strict=True):
        assert spans[begin][3] < spans[end][2]
        assert route[0][1] == pytest.approx(spans[begin][3]) and route[-1][1] == pytest.approx(spans[end][2])
        assert [y for _, y in route] == sorted(y for _, y in route)


def test_a_ladder_has_no_crossings():
    """Two chains beside each other, given in an order that crosses them."""
    placed = layout([(50, 20)] * 6, [(0, 3), (1, 2), (2, 5), (3, 4)])
    x = [centre[0] for centre in placed.centres]
    assert (x[0] < x[1]) == (x[3] < x[2]) == (x[4] < x[5])
    assert x[0] == pytest.approx(x[3]) and x[1] == pytest.approx(x[2])
