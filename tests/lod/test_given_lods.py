"""A LoD that is given to rows, or compared with another, must fit them: wrong sequences would be silently wrong."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid

from .conftest import ragged

_LODS = ([0, 2, 3], [0, 2, 4], [0, 1, 2])
_NUMBERS = (*_LODS, [0, 4, 3], [1, 2, 3])


@pytest.mark.parametrize(
    ("by", "offsets"),
    [("sequences", o) for o in _LODS] + [(by, o) for by in ("target", "numbers") for o in _NUMBERS],
    ids=str,
)
@pytest.mark.parametrize("computed", [False, True], ids=["fed", "computed"])
def test_a_new_lod_ends_where_the_rows_end(by: str, offsets: list[int], computed: bool) -> None:
    feed = {"x": ragged(np.ones((3, 3), np.float32), [1, 2])}
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, y = fluid.data("x", [None, 3], lod_level=1), None
        if by != "target":
            y = fluid.data("y", [None], "int32", lod_level=int(by == "sequences"))
            rows = np.zeros(offsets[-1], np.int32)
            feed["y"] = ragged(rows, list(np.diff(offsets))) if by == "sequences" else np.array(offsets, np.int32)
        if computed:
            x, y = fluid.layers.scale(x, 1.0), None if y is None else fluid.layers.scale(y, 1.0)
        out = fluid.layers.lod_reset(x, y, offsets if y is None else None)
        exe = fluid.Executor(fluid.CPUPlace())
        if offsets == [0, 2, 3]:
            (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
            assert found.lod() == [offsets]
            return
        with pytest.raises(fluid.core.EnforceNotMet, match="lod_reset(.|\n)*the number of rows of X"):
            exe.run(feed=feed, fetch_list=[out])


def test_chunks_are_compared_in_equal_sequences() -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        found, label = (fluid.data(name, [None, 1], "int64", lod_level=1) for name in ("found", "label"))
        counts = fluid.layers.chunk_eval(found, label, "IOB", 2)[3:]
    first, other = (ragged(np.zeros((3, 1), int), n) for n in ([1, 2], [2, 1]))
    assert [v.item() for v in fluid.Executor().run(program, {"found": first, "label": first}, counts)] == [3, 3, 3]
    with pytest.raises(fluid.core.EnforceNotMet, match="the sequences of Label"):
        fluid.Executor().run(program, {"found": first, "label": other}, counts)
