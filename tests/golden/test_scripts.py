"""What the replay tools beside recordings print becomes the outcome of each case."""

from pathlib import Path

import pytest

from tests.golden.scripts import Tool


def tool(folder: Path, *lines: str) -> Tool:
    """A tool that prints these lines after its arguments."""
    (folder / "replay.py").write_text(f"import sys\nfor line in {list(lines)!r}: print(line)\n")
    return Tool("replay.py", ("cases",))


def test_cases_are_told_apart(tmp_path):
    lines = "a   pass (1.2 s)", "b equal", "c FAIL loss of step 1", "d trainer_0: w differs", "dygraph: 2 of 4 cases"
    found = tool(tmp_path, *lines).cases(tmp_path)
    assert found == {"a": "", "b": "", "c": "FAIL loss of step 1", "d": "trainer_0: w differs"}


@pytest.mark.parametrize("lines", [(), ("a equal",), ("a equal", "dp: 1 of 2"), ("a no", "dp: 1 of 1")])
def test_a_tool_that_says_otherwise_at_the_end_is_not_believed(tmp_path, lines):
    with pytest.raises(RuntimeError, match="a line for each case"):
        tool(tmp_path, *lines).cases(tmp_path)
