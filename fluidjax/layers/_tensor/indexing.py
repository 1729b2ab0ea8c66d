"""Gathering, scattering, searching and hashing."""

from __future__ import annotations

from typing import Any

from fluidjax.base.enums import VarType, to_var_type
from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._tensor.slicing import slice
from fluidjax.layers.tensor import zeros
from fluidjax.writing.checks import FULL_NUMBERS, INTS, check_type, check_variable_and_dtype, only
from fluidjax.writing.emit import emit, emit_many

__all__ = [
    "gather",
    "gather_nd",
    "gather_tree",
    "index_sample",
    "index_select",
    "multiplex",
    "nonzero",
    "one_hot",
    "scatter",
    "scatter_nd",
    "scatter_nd_add",
    "shard_index",
    "topk",
    "unique",
    "unique_with_counts",
    "where",
]


def gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """out[i] = input[index[i]].

    Args:
        input: at least one dimension.
        index: int32 or int64, [N] or [N, 1].
        overwrite: for a row gathered several times, the last gradient wins; False accumulates them.
    """
    attrs = {"overwrite": overwrite}
    input = only(input, "gather")
    return emit("gather", {"X": input, "Index": index}, input.dtype, attrs)


def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Variable:
    """out = input[index[..., 0], index[..., 1], ...]; the last dimension of ``index`` indexes leading ones of input."""
    input = only(input, "gather_nd")
    return emit("gather_nd", {"X": input, "Index": index}, input.dtype, name=name)


def scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None, overwrite: bool = True
) -> Variable:
    """``input`` with row index[i] replaced by updates[i] or, if not ``overwrite``, by the sum of its updates."""
    input = only(input, "scatter")
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return emit("scatter", inputs, input.dtype, {"overwrite": overwrite}, name=name)


def scatter_nd_add(ref: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """``ref`` with ``updates`` added at ``index`` (see gather_nd); repeated indices accumulate.

    Raises:
        ValueError: ``ref`` and ``updates`` differ in dtype.
    """
    index = only(index)
    for label, value in (("ref", ref), ("index", index), ("updates", updates)):
        check_type(value, label, Variable, "scatter_nd_add")
    if ref.dtype != updates.dtype:
        raise ArgumentError(
            f"ref and updates must have same data type, received {ref.dtype} and {updates.dtype}; cast one"
        )
    helper = LayerHelper("scatter_nd_add", name=name)
    out = helper.create_variable_for_type_inference(ref.dtype)
    inputs = {"X": ref, "Index": index, "Updates": updates}
    helper.append_op(type="scatter_nd_add", inputs=inputs, outputs={"Out": out})
    return out


def scatter_nd(index: Variable, updates: Variable, shape: list[int], name: str | None = None) -> Variable:
    """Zeros of shape ``shape`` with ``updates`` added at ``index``."""
    check_type(updates, "updates", Variable, "scatter_nd")
    return scatter_nd_add(zeros(shape, updates.dtype), index, updates, name)


def index_select(input: Variable, index: Variable, dim: int = 0) -> Variable:
    """The slices ``index`` (int32 or int64, [N]) of ``input`` along ``dim``."""
    check_variable_and_dtype(input, "x", FULL_NUMBERS, "index_select")
    check_variable_and_dtype(index, "index", INTS, "index_select")
    return emit("index_select", {"X": input, "Index": index}, input.dtype, {"dim": dim})


def index_sample(x: Variable, index: Variable) -> Variable:
    """out[b, j] = x[b, index[b, j]], for x [B, N] and index [B, M] (int32 or int64)."""
    check_variable_and_dtype(x, "x", FULL_NUMBERS, "index_sample")
    check_variable_and_dtype(index, "index", INTS, "index_sample")
    return emit("index_sample", {"X": x, "Index": index}, x.dtype)


def multiplex(inputs: list[Variable], index: Variable) -> Variable:
    """out[b] = inputs[index[b]][b]: each row taken from the tensor selected by ``index`` (int32, [B, 1]).

    Raises:
        TypeError: ``inputs`` is not a list of Variables.
        ValueError: it has fewer than two.
    """
    check_type(inputs, "inputs", list, "multiplex")
    if len(inputs) < 2:
        raise ArgumentError("inputs should be a list object and contains at least 2 elements; pass such a list")
    for number, one in enumerate(inputs):
        check_variable_and_dtype(one, f"input[{number}]", FULL_NUMBERS, "multiplex")
    check_variable_and_dtype(index, "index", INTS, "multiplex")
    return emit("multiplex", {"X": inputs, "Ids": index}, inputs[0].dtype)


def where(condition: Variable) -> Variable:
    """The indices of the true elements of ``condition``: int64 [count, rank]."""
    return emit("where_index", {"Condition": condition}, VarType.INT64)


def nonzero(input: Variable, as_tuple: bool = False) -> Any:
    """The indices of the nonzero elements: [count, rank], or as a tuple, one [count, 1] per dimension."""
    out = where(input)
    if not as_tuple:
        return out
    rank = len(input.shape)
    if rank == 1:
        return (out,)
    return tuple(slice(out, axes=[rank - 1], starts=[i], ends=[i + 1]) for i in range(rank))


def topk(input: Variable, k: int | Variable, name: str | None = None) -> tuple[Variable, Variable]:
    """The k largest values of each row in descending order, and their int64 indices.

    Args:
        input: float32 or float64; the rows run along its last dimension.
        k: a number, or a Variable [1].

    Examples:
        >>> with fluid.dygraph.guard():
        ...     values, places = fluid.layers.topk(fluid.dygraph.to_variable(np.float32([[1, 9, 5]])), k=2)
        ...     print(values.numpy(), places.numpy())
        [[9. 5.]] [[1 2]]
    """
    inputs: dict[str, Any] = {"X": [input]}
    attrs: dict[str, Any] = {}
    if isinstance(k, Variable):
        inputs["K"] = [k]
    else:
        attrs["k"] = k
    outputs = [("Out", input.dtype, False), ("Indices", "int64", False)]
    values, indices = emit_many("top_k", inputs, outputs, attrs, name=name)
    values.stop_gradient = True
    indices.stop_gradient = True
    return values, indices


def one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """out[.., j] = 1.0 where input[.., 0] == j; ``depth`` is a number or a Variable [1].

    Out-of-range ids give rows of zeros (Fluid raises for them unless ``allow_out_of_range``).
    """
    check_variable_and_dtype(input, "input", INTS, "one_hot")
    check_type(depth, "depth", (int, Variable), "one_hot")
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {"allow_out_of_range": allow_out_of_range}
    if isinstance(depth, Variable):
        depth.stop_gradient = True
        inputs["depth_tensor"] = depth
    else:
        attrs["depth"] = depth
    out = emit("one_hot", inputs, "float32", attrs)
    out.stop_gradient = True
    return out


def unique(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable]:
    """The distinct values of a vector in order of first appearance, and the index of each element among them."""
    check_variable_and_dtype(x, "x", FULL_NUMBERS, "unique")
    out_types = [("Out", x.dtype, False), ("Index", dtype, False)]
    attrs = {"dtype": int(to_var_type(dtype))}
    out, index = emit_many("unique", {"X": [x]}, out_types, attrs)
    return out, index


def unique_with_counts(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable, Variable]:
    """As ``unique``, with the count of each distinct value. ``dtype`` (of index and count) is int32 or int64.

    Raises:
        TypeError: any other ``dtype``.
    """
    check_variable_and_dtype(x, "x", FULL_NUMBERS, "unique_with_counts")
    if dtype not in INTS:
        raise TypeError(
            f"Op unique_with_counts, index dtype must be int32 or int64, received {dtype!r}; pass one of them"
        )
    if x is None or len(x.shape) != 1:
        raise ArgumentError("Op unique_with_counts, x must not be null and size of dim must be 1; reshape it")
    outputs = [("Out", x.dtype, False), ("Index", dtype, False), ("Count", dtype, False)]
    attrs = {"dtype": int(to_var_type(dtype))}
    out, index, count = emit_many("unique_with_counts", {"X": [x]}, outputs, attrs)
    return out, index, count


def gather_tree(ids: Variable, parents: Variable) -> Variable:
    """Complete beams [T, B, W], backtracking ``ids`` from the last step along ``parents`` (int32 or int64)."""
    check_variable_and_dtype(ids, "ids", INTS, "gather_tree")
    check_variable_and_dtype(parents, "parents", INTS, "gather_tree")
    return emit("gather_tree", {"Ids": ids, "Parents": parents}, ids.dtype)


def shard_index(input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1) -> Variable:
    """Map each id in [0, index_num) to its index within shard ``shard_id`` of ``nshards``, or ``ignore_value`` if the
    id belongs to another shard.

    Raises:
        ValueError: ``shard_id`` is not in [0, nshards).
    """
    check_variable_and_dtype(input, "input", ("int64",), "shard_index")
    if not 0 <= shard_id < nshards:
        raise ArgumentError(f"The shard_id({shard_id}) should be in [0, {nshards}); pass such a shard")
    attrs = {"index_num": index_num, "nshards": nshards, "shard_id": shard_id, "ignore_value": ignore_value}
    return emit("shard_index", {"X": [input]}, input.dtype, attrs)
