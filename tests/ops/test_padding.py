"""Padding rows change nothing in the ops that are not about sequences either."""

import jax
import pytest

import lowering
from lowering.errors import NeedsExact
from tests.lod.property import Case, Dense, Rows, draw, values_of
from tests.lod.test_padding import COUNT, TOTAL, compare

pytestmark = pytest.mark.usefixtures("compiled_quickly")

WISE_UNARY = "relu tanh softplus softmax scale assign".split()
POSITIVE_UNARY = "sqrt log pow".split()
BINARY = "elementwise_add elementwise_mul elementwise_div elementwise_max".split()
REDUCTIONS = "reduce_sum reduce_mean reduce_max reduce_min reduce_prod frobenius_norm".split()


def _pair(op, ids, x, y, attrs=None):
    return Case(op, {"X": x, "Y": y}, attrs or {}, ids)


SCATTERED = [
    ("into rows", {"X": Rows(), "Ids": Dense((2,), below=3), "Updates": Dense((2, 3))}),
    ("rows into rows", {"X": Rows(), "Ids": Rows((1,), below=3), "Updates": Rows()}),
    ("rows", {"X": Dense((5, 3)), "Ids": Rows((1,), below=5), "Updates": Rows()}),
]
CASES = [
    *(Case(op, {"X": Rows()}) for op in WISE_UNARY),
    *(Case(op, {"X": Rows(positive=True)}) for op in POSITIVE_UNARY),
    *(_pair(op, "rows", Rows(positive=True), Rows(positive=True)) for op in BINARY),
    *(_pair(op, "bias", Rows(positive=True), Dense((3,)), {"axis": 1}) for op in BINARY[:2]),
    *(_pair(op, "scalar", Rows(positive=True), Dense((1,)), {"axis": -1}) for op in BINARY[:2]),
    *(Case(op, {"X": Rows(positive=True)}, {"reduce_all": True}, "all") for op in REDUCTIONS),
    *(Case(op, {"X": Rows(positive=True)}, {"dim": [0]}, "rows") for op in REDUCTIONS),
    *(Case(op, {"X": Rows((3, 2), positive=True)}, {"dim": [1]}, "inner") for op in REDUCTIONS),
    Case("mean", {"X": Rows()}),
    Case("squared_l2_norm", {"X": Rows()}),
    Case("l1_norm", {"X": Rows()}),
    _pair("mul", "", Rows((4,)), Dense((4, 2))),
    _pair("mul", "dims", Rows((2, 2)), Dense((4, 2)), {"x_num_col_dims": 1}),
    _pair("matmul", "", Rows((4,)), Dense((4, 2))),
    _pair("dot", "", Rows(), Rows()),
    _pair("cos_sim", "", Rows(), Rows()),
    _pair("cos_sim", "one-row", Rows(), Dense((1, 3))),
    Case("norm", {"X": Rows()}, {"axis": 1}),
    Case("clip", {"X": Rows()}, {"min": -1.0, "max": 1.0}),
    Case("prelu", {"X": Rows(), "Alpha": Dense((1,))}, {"mode": "all"}),
    Case("concat", {"X": Rows()}, {"axis": 1}, "columns"),
    Case("concat", {"X": Rows()}, {"axis": 0}, "rows"),
    Case("stack", {"X": Rows()}, {"axis": 1}),
    Case("reshape2", {"X": Rows((4,))}, {"shape": [-1, 2, 2]}),
    Case("reshape2", {"X": Rows((4,))}, {"shape": [0, 1, 4]}, "zero"),
    Case("reshape2", {"X": Rows((4,))}, {"shape": [-1]}, "every element a row"),
    Case("reshape2", {"X": Rows((4,))}, {"shape": [-1, 2]}, "two rows of each"),
    Case("squeeze2", {"X": Rows((1, 3))}, {"axes": [1]}),
    Case("unsqueeze2", {"X": Rows()}, {"axes": [1]}),
    Case("flatten2", {"X": Rows((2, 3))}),
    Case("transpose2", {"X": Rows((2, 3))}, {"axis": [0, 2, 1]}),
    Case("expand", {"X": Rows((1,))}, {"expand_times": [1, 4]}),
    Case("slice", {"Input": Rows((4,))}, {"axes": [1], "starts": [1], "ends": [3]}),
    Case("cumsum", {"X": Rows()}, {"axis": 1}),
    Case("top_k", {"X": Rows((5,))}, {"k": 2}),
    Case("argsort", {"X": Rows((5,))}, {"axis": 1}),
    Case("arg_max", {"X": Rows((5,))}, {"axis": 1}),
    Case("one_hot", {"X": Rows((1,), below=5)}, {"depth": 5}),
    Case("cast", {"X": Rows()}, {"in_dtype": 6, "out_dtype": 6}),
    Case("sum", {"X": Rows()}),
    Case("gather", {"X": Dense((6, 2)), "Index": Rows((1,), below=6)}, {"overwrite": False}),
    Case("gather", {"X": Dense((6, 2)), "Index": Rows((1,), below=6)}, {"overwrite": True}, "overwrite"),
    Case("gather", {"X": Rows(), "Index": Dense((4,), below=3)}, {"overwrite": True}, "of rows"),
    Case("gather", {"X": Rows(), "Index": Rows((1,), below=3)}, {"overwrite": False}, "of rows by rows"),
    *(Case("scatter", ins, {"overwrite": flag}, f"{name} {flag}") for name, ins in SCATTERED for flag in (True, False)),
    Case("shape", {"Input": Rows()}),
    Case("size", {"Input": Rows()}),
    Case("fill_zeros_like", {"X": Rows()}),
    Case("fill_constant_batch_size_like", {"Input": Rows()}, {"shape": [1, 2], "value": 2.0}),
    Case("isfinite", {"X": Rows()}),
    _pair("less_than", "", Rows(), Rows()),
]

MIXING = [
    Case("softmax", {"X": Rows()}, {"axis": 0}),
    Case("transpose2", {"X": Rows()}, {"axis": [1, 0]}),
    Case("reshape2", {"X": Rows((4,))}, {"shape": [-1, 16]}),
    Case("cumsum", {"X": Rows()}, {"axis": 0}),
    Case("reverse", {"X": Rows()}, {"axis": [0]}),
    Case("slice", {"Input": Rows()}, {"axes": [0], "starts": [1], "ends": [3]}),
    Case("argsort", {"X": Rows()}, {"axis": -2}),
    Case("stack", {"X": Rows()}, {"axis": 0}),
    Case("norm", {"X": Rows()}, {"axis": 0}),
    Case("expand", {"X": Rows()}, {"expand_times": [2, 1]}),
    Case("elementwise_add", {"X": Rows(), "Y": Dense((16, 3))}),
    Case("merge_selected_rows", {"X": Rows()}),  # takes values as they are
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_padding_changes_nothing(case, rng):
    with jax.enable_x64(True):
        compare(case, draw(case, rng, COUNT, TOTAL), rng)


@pytest.mark.parametrize("case", MIXING, ids=lambda c: c.name)
def test_ops_that_mix_rows_ask_for_exact_ones(case, rng):
    """Nothing silently pairs rows with padding: such an op makes the executor recompile with exact rows."""
    attrs = lowering.check_attrs(case.op, case.attrs)
    with jax.enable_x64(True):
        ins = values_of(case, draw(case, rng, COUNT, TOTAL), 16, "first")
        with pytest.raises(NeedsExact):
            lowering.engine.call.call(lowering.get_op(case.op), ins, attrs, {"key": None, "ctx": None})
