"""docs/decisions.md and docs/deviations.md: entries stand under themes, which the contents at the top list in order."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["decisions.md", "deviations.md"])
def test_the_contents_list_the_themes(page):
    contents, *themes = re.split(r"^## ", (DOCS / page).read_text(), flags=re.MULTILINE)
    assert re.findall(r"^- \[(.*)\]\(#", contents, re.MULTILINE) == [theme.split("\n")[0] for theme in themes]


def test_each_decision_stands_under_a_theme():
    themes = re.split(r"^## ", (DOCS / "decisions.md").read_text(), flags=re.MULTILINE)[1:]
    decisions = [d.split("\n", 1) for theme in themes for d in re.split(r"^### ", theme, flags=re.MULTILINE)[1:]]
    loose = [theme.split("\n")[0] for theme in themes if theme.partition("### ")[0].split("\n", 1)[1].strip()]
    assert loose == [], "a decision is a '###' under the '##' of its theme"
    assert [title for title, text in decisions if not text.strip()] == []
    assert len({title for title, _ in decisions}) == len(decisions) > 140
