"""crf_decoding beside every labelling of short sequences, ties included."""

from itertools import product

import numpy as np
import pytest

import fluidjax as fluid

TAGS = 3


def _best(rows, weights):
    """The best labelling of ``rows`` [n, TAGS]; of equal ones that whose last tag is lowest, then the one before ..."""

    def score(path):
        moves = sum(weights[2 + i, j] for i, j in zip(path, path[1:], strict=False))
        ends = weights[0, path[0]] + weights[1, path[-1]]
        return ends + moves + sum(row[tag] for row, tag in zip(rows, path, strict=True))

    return min(product(range(TAGS), repeat=len(rows)), key=lambda path: (-score(path), path[::-1])) if len(rows) else ()


@pytest.mark.parametrize("lengths", [[6], [1], [3, 0, 5, 1, 4]])
def test_of_all_labellings_the_best_is_found_and_of_equal_ones_the_lowest(rng, lengths):
    """Whole numbers are summed exactly, so that many labellings are equal."""
    weights = rng.integers(-1, 2, (TAGS + 2, TAGS)).astype("float32")
    rows = rng.integers(-1, 2, (sum(lengths), TAGS)).astype("float32")
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        emission = fluid.data("emission", [None, TAGS], "float32", lod_level=1)
        fluid.layers.create_parameter([TAGS + 2, TAGS], "float32", name="crf")
        path = fluid.layers.crf_decoding(emission, fluid.ParamAttr(name="crf"))
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.global_scope().find_var("crf").get_tensor().set(weights, fluid.CPUPlace())
        fed = {"emission": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())}
        (found,) = exe.run(main, feed=fed, fetch_list=[path], return_numpy=False)
    ends = np.cumsum([0, *lengths])
    wanted = [tag for a, b in zip(ends, ends[1:], strict=False) for tag in _best(rows[a:b], weights)]
    assert np.array(found)[:, 0].tolist() == wanted
