"""A program's graph as an SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from fluidjax.drawing.graph import BLOCKS, DATA, LEARNS, PLAIN, RESULT, Line, Node, graph
from fluidjax.drawing.layout import Layout, Point, layout
from fluidjax.files import atomic
from fluidjax.framework import Block, Program
from fluidjax.framework.listing import size_text
from fluidjax.framework.text import printable

# Fill and edge of each role.
_COLORS = {
    DATA: ("#dbe9f6", "#4a7fb0"),
    LEARNS: ("#d8ecd9", "#5a9860"),
    PLAIN: ("#eceff1", "#90a4ae"),
    BLOCKS: ("#fde8c9", "#d0913a"),
    RESULT: ("#f9dcdc", "#c46a6a"),
}
# Of the fixed-width font that texts are set in.
_CHARACTER, _LINE, _MARGIN, _SPACE = 6.65, 16.0, 8.0, 14.0
FONT = 'font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="11"'
# Longer names and lists of ops are cut; the tooltip has them whole.
_LONGEST = 44


class Drawing:
    """A picture: displayed by notebooks, written to a file by ``save``; ``svg`` is its source."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str) -> str:
        """Write the SVG to a file and return the file's path."""
        atomic.write_file(path, [self.svg.encode()])
        return path


def draw(what: Program | Block) -> Drawing:
    """The forward pass of a program, or of one of its blocks, as a picture.

    A box has one line per layer, with the shape of its output; the ops of a layer share a line, and layers in a chain
    share a box. Tooltips show ops, parameters and source lines. Colours mark feeds, layers with parameters, ops that
    run a block (drawn below), and results, which nothing reads.
    """
    blocks = [what] if isinstance(what, Block) else what.blocks
    parts, top, width = [_legend()], 3 * _LINE, 620.0
    for block in blocks:
        picture, size = _block(block, top)
        if size[1]:
            parts.append(picture)
            top, width = top + size[1] + 2 * _LINE, max(width, size[0])
    title = size_text(blocks[0].program)
    parts.insert(0, f'<text x="{_MARGIN}" y="{_LINE}" font-weight="bold">{escape(title)}</text>')
    width += 2 * _MARGIN
    return Drawing(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top:.0f}" '
        f'viewBox="0 0 {width:.0f} {top:.0f}" {FONT} fill="#212121">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>'
    )


def _legend() -> str:
    parts, x = [], _MARGIN
    for role, (fill, edge) in _COLORS.items():
        parts.append(f'<rect x="{x}" y="{1.5 * _LINE}" width="11" height="11" rx="2" fill="{fill}" stroke="{edge}"/>')
        parts.append(f'<text x="{x + 16}" y="{1.5 * _LINE + 10}">{role}</text>')
        x += 16 + (len(role) + 3) * _CHARACTER
    return "".join(parts)


def _block(block: Block, top: float) -> tuple[str, Point]:
    """(the picture of a block, its size); empty if the block has no forward ops."""
    nodes = graph(block)
    if not nodes:
        return "", (0.0, 0.0)
    heading = ""
    if block.idx:
        heading = (
            f'<text x="{_MARGIN}" y="{top + 4}" font-weight="bold">block {block.idx}, run by {_runner(block)}</text>'
        )
    edges = [(before, at) for at, node in enumerate(nodes) for before in node.before]
    places = layout([_size(node) for node in nodes], edges)
    down = top + (_LINE if block.idx else 0)
    drawn = "".join([*map(_edge, places.routes), *_boxes(nodes, places)])
    size = places.width, places.height + (_LINE if block.idx else 0)
    return f'{heading}<g transform="translate({_MARGIN},{down})">{drawn}</g>', size


def _runner(block: Block) -> str:
    """The op that runs a block, with the block it belongs to."""
    for around in block.program.blocks:
        for index, op in enumerate(around.ops):
            if block.idx in op._sub_block_ids():
                return f"{escape(op.type)} (op {index} of block {around.idx})"
    return "no op"


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _columns(node: Node) -> list[float]:
    """The widths of a box's columns: names, ops, shapes."""
    texts = ([_short(line.name), _short(line.ops), line.shape] for line in node.lines)
    return [max(map(len, column)) * _CHARACTER for column in zip(*texts, strict=True)]


def _size(node: Node) -> Point:
    filled = [width for width in _columns(node) if width]
    return sum(filled) + _SPACE * (len(filled) - 1) + 2 * _MARGIN, len(node.lines) * _LINE + 6


def _boxes(nodes: list[Node], places: Layout) -> Iterator[str]:
    for node, (x, y) in zip(nodes, places.centres, strict=True):
        width, height = _size(node)
        fill, edge = _COLORS[node.role]
        radius = height / 2 if node.role == DATA else 4
        left, top = x - width / 2, y - height / 2
        lines = "".join(_line(line, node, left, top + 15 + i * _LINE, width) for i, line in enumerate(node.lines))
        yield (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}" '
            f'fill="{fill}" stroke="{edge}"/>{lines}'
        )


def _line(line: Line, node: Node, left: float, y: float, width: float) -> str:
    names, _, _ = _columns(node)
    ops = left + _MARGIN + names + _SPACE
    texts = [f'<text x="{left + _MARGIN:.1f}" y="{y:.1f}" font-weight="600">{escape(_short(line.name))}</text>']
    if line.ops:
        texts.append(f'<text x="{ops:.1f}" y="{y:.1f}" fill="#607d8b">{escape(_short(line.ops))}</text>')
    if line.shape:
        right = left + width - _MARGIN
        texts.append(f'<text x="{right:.1f}" y="{y:.1f}" text-anchor="end">{escape(line.shape)}</text>')
    return f"<g><title>{escape(printable(line.tip))}</title>{''.join(texts)}</g>"


def _edge(points: list[Point]) -> str:
    """A curve that leaves and enters boxes vertically and passes straight through the rows between."""
    path = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for at, ((x0, y0), (x1, y1)) in enumerate(zip(points, points[1:], strict=False)):
        middle = (y0 + y1) / 2
        path.append(f"V{y1:.1f}" if at % 2 else f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}")
    x, y = points[-1]
    tip = f'<path d="M{x - 3:.1f} {y - 5:.1f}L{x:.1f} {y:.1f}L{x + 3:.1f} {y - 5:.1f}Z" fill="#78909c"/>'
    return f'<path d="{"".join(path)}" fill="none" stroke="#78909c"/>{tip}'
