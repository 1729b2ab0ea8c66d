"""HTML tables for notebooks, and their style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_MONO = "font-family:var(--jp-code-font-family,ui-monospace,Menlo,Consolas,monospace);font-size:12px"
# Notebooks have rules of their own for tables, stronger than a plain class.
_STYLE = (
    f"<style>div.fluidjax,div.fluidjax table{{{_MONO}}}"
    "div.fluidjax table{border-collapse:collapse;table-layout:auto !important;margin:4px 0 8px 0 !important}"
    "div.fluidjax th,div.fluidjax td{text-align:left !important;padding:2px 8px !important;"
    "vertical-align:top !important;max-width:none !important;border:0}"
    "div.fluidjax td.number{text-align:right !important}"
    "div.fluidjax td.line{opacity:.7;padding-top:6px !important;white-space:pre-wrap}"
    "div.fluidjax summary{cursor:pointer}div.fluidjax pre{font-family:inherit;margin:4px 0}"
    "div.fluidjax .bad{color:#c62828;font-weight:bold}</style>"
)


def page(content: str) -> str:
    """Content with the style sheet."""
    return f'{_STYLE}<div class="fluidjax">{content}</div>'


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain text: the first column left-aligned, the others (numbers) right-aligned."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=number' if at else ''}>{escape(cell)}</td>" for at, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
