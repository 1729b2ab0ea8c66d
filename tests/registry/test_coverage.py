"""docs/coverage.md is generated, and current."""

from tests.golden.c import NO_TEST
from tools.coverage import PAGE, c_programs, static_part


def test_page_is_current():
    assert PAGE.read_text().startswith(static_part()), "run 'make coverage' and commit docs/coverage.md"


def test_programs_that_became_c_are_counted() -> None:
    """A network without a test program counts for its step alone; what differs is listed."""
    page = c_programs({
        "one": {"forward": "equal", "step": "float64"},
        "two": {"forward": NO_TEST, "step": "w_0: 1.0e-02 from the Executor"},
    })  # fmt: skip
    assert "| forward passes | 1 | 1 | 0 | 100 % |" in page
    assert "| whole training steps | 2 | 0 | 1 | 50 % |" in page
    assert page.endswith("- `two`, step: w_0: 1.0e-02 from the Executor")
