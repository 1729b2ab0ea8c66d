"""The Python of the guide runs as it stands: the blocks of a page one after the other, in an empty folder."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

import fluidjax as fluid

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["index.md", "guide/migration.md", "guide/cookbook.md", "guide/errors.md", "guide/distribution.md"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / page).read_text()
    blocks = [(m.start(), m[1]) for m in re.finditer(r"```python\n(.*?)```", text, re.DOTALL)]
    assert blocks
    names: dict[str, object] = {"fluid": fluid}
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
        warnings.catch_warnings(),
    ):
        for start, block in blocks:
            line = text.count("\n", 0, start) + 1
            exec(compile("\n" * line + block, str(DOCS / page), "exec"), names)


ROOT = DOCS.parent
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(text):
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text.read_text())
    assert [link for link in links if not (text.parent / link).exists()] == []


def test_every_page_is_in_the_sites_menu():
    menu = (ROOT / "tools/mkdocs.yml").read_text()
    missing = [p for p in DOCS.rglob("*.md") if f": {p.relative_to(DOCS)}" not in menu]
    missing += [p for p in (ROOT / "notebooks").glob("*.ipynb") if f": notebooks/{p.stem}.html" not in menu]
    assert missing == []


def test_pictures_are_small():
    assert all(path.stat().st_size < 60_000 for path in (DOCS / "pictures").iterdir())
