"""docs/coverage.md is generated, and current."""

from tools.coverage import PAGE, static_part


def test_page_is_current():
    assert PAGE.read_text().startswith(static_part()), "run 'make coverage' and commit docs/coverage.md"
