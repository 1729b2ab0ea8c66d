"""LoDTensor, SelectedRows, LoDTensorArray and Scope."""

from __future__ import annotations

import ctypes
import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.core import EnforceNotMet, LoDTensor, LoDTensorArray, Scope, SelectedRows, VarDesc
from fluidjax.execution.scopes.exchange import to_holder
from lowering import LoDArray

CPU = fluid.CPUPlace()


def tensor(array) -> LoDTensor:
    made = LoDTensor()
    made.set(array, CPU)
    return made


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "bfloat16"]
)
def test_set_and_read_every_element_type(dtype: str) -> None:
    data = np.array([[1, 0, 2]]).astype(jnp.dtype(dtype))
    made = tensor(data)
    assert made.shape() == [1, 3] and np.array(made).dtype == data.dtype
    np.testing.assert_array_equal(np.array(made), data)
    assert made._dtype() == fluid.framework.convert_np_dtype_to_dtype_(data.dtype)


def test_half_precision_words() -> None:
    assert np.array(tensor(np.array([0x3C00], np.uint16))).tolist() == [1.0]
    assert tensor(np.array([1], np.uint16))._dtype() == VarDesc.VarType.FP16


@pytest.mark.parametrize("data", [np.ones(2, "complex64"), np.ones(2, "uint32"), np.array(["a"])])
def test_element_types_that_are_refused(data) -> None:
    with pytest.raises(EnforceNotMet, match="cannot be stored. Expected one of"):
        tensor(data)


def test_a_place_is_needed() -> None:
    with pytest.raises(TypeError, match="Expected a place"):
        LoDTensor().set([1.0], "cpu")  # type: ignore[arg-type]


def test_nothing_is_shared_with_the_user() -> None:
    data = np.ones((2, 2), "float32")
    made = tensor(data)
    data[:] = 5
    copies = [np.array(made), np.asarray(made), made.__array__(copy=False)]
    for copy in copies:
        copy[:] = 7
    assert np.array(made).tolist() == [[1, 1], [1, 1]]


def test_storage_of_programs_is_kept_as_it_is() -> None:
    made, state = LoDTensor(), jnp.arange(4.0)
    made._set_value(state)
    assert made._value is state and made.shape() == [4]
    seen = np.array(made)
    state.delete()  # what happens to storage that a program gives away
    assert seen.tolist() == [0, 1, 2, 3]


def test_padded_rows_are_not_seen() -> None:
    offsets = np.array([0, 2, 3, 3], np.int32)
    made = to_holder(LoDArray(jnp.arange(8.0).reshape(4, 2), (offsets,), np.int32(3), np.int32(2)))
    assert made.shape() == [3, 2] and made.lod() == [[0, 2, 3]]
    assert np.array(made).shape == (3, 2) and made.has_valid_recursive_sequence_lengths()
    made.set_lod([[0, 1, 3]])
    assert made.lod() == [[0, 1, 3]] and made._value.shape == (3, 2)


def test_nothing_stored() -> None:
    made = LoDTensor()
    assert made.shape() == [0] and np.array(made).size == 0 and not made._is_initialized()
    assert made.lod() == [] and made.recursive_sequence_lengths() == []
    with pytest.raises(EnforceNotMet, match="not initialized yet when _dtype.. is called.*run the program"):
        made._dtype()
    assert "not initialized" in str(made)


def test_lod_in_both_forms() -> None:
    made = tensor(np.zeros((6, 1)))
    made.set_recursive_sequence_lengths([[2], [3, 3]])
    assert made.lod() == [[0, 2], [0, 3, 6]]
    made.set_lod([[0, 1, 3], [0, 2, 2, 6]])
    assert made.recursive_sequence_lengths() == [[1, 2], [2, 0, 4]]
    made.lod()[0].append(9)
    assert made.lod()[0] == [0, 1, 3], "what is handed out is a copy"
    made.set_lod([])
    assert made.lod() == []


@pytest.mark.parametrize(
    ("lod", "told"),
    [
        ([[0, 5]], "level 0 ends at 5, but there are 6"),
        ([[1, 6]], "starts at 1"),
        ([[0, 4, 2, 6]], "decreases"),
        ([[0]], "at least 2"),
        ([[0, 3], [0, 2, 6]], "level 0 ends at 3, but there are 2 of the sequences"),
    ],
)
def test_offsets_that_do_not_fit(lod, told) -> None:
    made = tensor(np.zeros((6, 1)))
    made.set_lod([[0, 6]])
    with pytest.raises(EnforceNotMet, match=f"the provided lod info is invalid: .*{told}"):
        made.set_lod(lod)
    assert made.lod() == [[0, 6]]
    with pytest.raises(EnforceNotMet, match="recursive_sequence_lengths info is invalid"):
        made.set_recursive_sequence_lengths([[7]])


def test_slices_keep_their_axes() -> None:
    made = tensor(np.arange(6, dtype="float32").reshape(2, 3))
    assert made[1].shape() == [1, 3] and np.array(made[1]).tolist() == [[3, 4, 5]]
    assert made[:, 1:].shape() == [2, 2] and made[-1].shape() == [1, 3]


def test_text_is_fluids() -> None:
    made = tensor(np.array([[1.23456789, 1e10, 1e-7]], "float32"))
    assert str(made) == "\tlod: {}\n\tdim: 1, 3\n\tlayout: NCHW\n\tdtype: float\n\tdata: [1.23457 1e+10 1e-07]\n"
    made = tensor(np.arange(6).reshape(6, 1))
    made.set_lod([[0, 2], [0, 3, 6]])
    assert str(made).startswith("\tlod: {{0, 2}{0, 3, 6}}\n\tdim: 6, 1\n\tlayout: NCHW\n\tdtype: int64_t\n")


def test_allocating_by_hand() -> None:
    made = LoDTensor()
    made._set_dims([2, 3])
    made._alloc_float(CPU)
    made._set_float_element(4, 2.5)
    assert made.shape() == [2, 3] and made._get_float_element(4) == 2.5
    other = LoDTensor()
    other._share_data_with(made)
    assert np.array(other).tolist() == np.array(made).tolist()
    made._clear()
    assert not made._is_initialized() and other._is_initialized()


def test_allocated_memory_is_written_through_its_address() -> None:
    made = LoDTensor()
    made._set_dims([2])
    address = made._mutable_data(CPU, VarDesc.VarType.FP32)
    ctypes.cast(address, ctypes.POINTER(ctypes.c_float))[1] = 1.5
    assert np.array(made).tolist() == [0.0, 1.5]


def test_tensors_can_be_pickled() -> None:
    made = tensor(np.arange(3.0))
    made.set_lod([[0, 3]])
    again = pickle.loads(pickle.dumps(made))
    assert again.lod() == [[0, 3]] and np.array(again).tolist() == [0, 1, 2]


def test_create_lod_tensor() -> None:
    made = fluid.create_lod_tensor([[1, 2, 3], [4, 5]], [[3, 2]], CPU)
    assert made.shape() == [5, 1] and made._dtype() == VarDesc.VarType.INT64 and made.lod() == [[0, 3, 5]]
    assert fluid.create_lod_tensor([[[1, 2], [3, 4]], [[5, 6]]], [[2, 1]], CPU).shape() == [3, 2, 1]
    assert fluid.create_lod_tensor(made, [[1, 4]], CPU).lod() == [[0, 1, 5]]
    assert fluid.create_lod_tensor(np.ones((6, 2)), [[2], [3, 3]], CPU).lod() == [[0, 2], [0, 3, 6]]
    with pytest.raises(AssertionError, match="data and recursive_seq_lens do not match"):
        fluid.create_lod_tensor([[1, 2, 3]], [[2]], CPU)
    with pytest.raises(TypeError, match="either a LoDTensor, a Numpy array or a list"):
        fluid.create_lod_tensor("a", [[1]], CPU)
    with pytest.raises(EnforceNotMet):
        fluid.create_lod_tensor(np.ones(3), [[2]], CPU)
    drawn = fluid.create_random_int_lodtensor([[2, 3]], [4], CPU, 1, 2)
    assert drawn.shape() == [5, 4] and set(np.array(drawn).reshape(-1)) <= {1, 2}
    with pytest.raises(AssertionError, match="base_shape should be a list"):
        fluid.create_random_int_lodtensor([[2]], 3, CPU, 0, 1)  # type: ignore[arg-type]


def test_selected_rows() -> None:
    rows = SelectedRows([1, 2], 10)
    assert (rows.rows(), rows.height(), rows.numel()) == ([1, 2], 10, 0)
    rows.set_rows([3, 3])
    rows.set_height(12)
    rows.sync_index()
    rows.get_tensor().set(np.ones((2, 4), "float32"), CPU)
    assert (rows.rows(), rows.height(), rows.numel()) == ([3, 3], 12, 8)
    assert rows.get_tensor().shape() == [2, 4]


def test_arrays_of_tensors() -> None:
    array, made = LoDTensorArray(), tensor(np.ones(2))
    array.append(made)
    array[0].set(np.zeros(1), CPU)
    assert np.array(array[0]).tolist() == [0] and np.array(made).tolist() == [1, 1], "append copies, [] does not"
    array[0] = made
    assert len(array) == 1 and np.array(array[0]).tolist() == [1, 1]
    with pytest.raises(IndexError):
        array[3]
    with pytest.raises(TypeError, match="holds LoDTensors"):
        array.append(np.ones(2))  # type: ignore[arg-type]
    assert len(array._move_to_list()) == 1 and len(array) == 0


def test_iteration_ends_behind_the_last_row() -> None:
    rows = list(tensor(np.arange(6, dtype=np.float32).reshape(2, 3)))
    assert [np.array(row).tolist() for row in rows] == [[[0, 1, 2]], [[3, 4, 5]]]


def test_indices_outside_are_errors_and_slices_outside_are_empty() -> None:
    made = tensor(np.zeros((2, 3), np.float32))
    for outside in (2, -3, (0, 3), (slice(0, 1), 5), (0, 0, 0)):
        with pytest.raises(IndexError):
            made[outside]
    assert made[2:5].shape() == [0, 3]
    assert made[np.int64(1)].shape() == made[1].shape() == made[-1].shape() == [1, 3]


def test_a_number_is_read_only_where_one_was_stored() -> None:
    var = Scope().var("x")
    for read in (var.get_int, var.get_float):
        with pytest.raises(EnforceNotMet, match="'x': Variable is not initialized"):
            read()
    var.set_int(3)
    assert var.get_int() == 3


def test_scopes_nest() -> None:
    outer = Scope()
    var = outer.var("a")
    assert outer.var("a") is var and outer.find_var("b") is None
    inner = outer.new_scope()
    assert inner.find_var("a") is var and inner.find_local_var("a") is None and inner.parent() is outer
    inner.var("a")
    assert inner.find_var("a") is not var, "a scope's own variable hides the outer one"
    inner.var("b")
    assert outer.find_var("b") is None and inner.local_var_names() == ["a", "b"]
    assert outer._kids() == [inner]
    outer.drop_kids()
    assert outer._kids() == [] and inner.find_var("c") is None
    outer.erase(["a", "unknown"])
    assert outer.find_var("a") is None
    assert outer.var() is not outer.var()
    outer._remove_from_pool()
    for gone in (outer, outer.new_scope()):
        with pytest.raises(fluid.core.EnforceNotMet, match="Deleting a nonexistent scope is not allowed"):
            gone._remove_from_pool()


def test_a_variable_holds_one_kind() -> None:
    scope = Scope()
    made = scope.var("t").get_tensor()
    assert scope.var("t").get_tensor() is made
    with pytest.raises(EnforceNotMet, match="'t': the Variable type must be SelectedRows.*it holds is LoDTensor"):
        scope.var("t").get_selected_rows()
    assert isinstance(scope.var("r").get_selected_rows(), SelectedRows)
    assert isinstance(scope.var("l").get_lod_tensor_array(), LoDTensorArray)
    number = scope.var("i")
    number.set_int(3)
    assert number.is_int() and number.get_int() == 3 and not number.is_float()
    with pytest.raises(EnforceNotMet):
        number.get_tensor()
    scope.var("f").set_float(2.5)
    assert scope.var("f").get_float() == 2.5 and scope.var("f").is_float()


def test_scope_guard() -> None:
    before, inside = fluid.global_scope(), Scope()
    with pytest.raises(RuntimeError), fluid.scope_guard(inside):
        assert fluid.global_scope() is inside
        raise RuntimeError
    assert fluid.global_scope() is before


def test_feed_and_fetch_columns() -> None:
    scope, made = Scope(), tensor(np.ones(2))
    fluid.core.set_feed_variable(scope, made, "feed", 1)
    assert fluid.core.get_fetch_variable(scope, "feed", 1) is made
    scope.var("x").get_tensor().set(np.ones(3), CPU)
    assert fluid.core.get_variable_tensor(scope, "x").shape() == [3]
    with pytest.raises(EnforceNotMet, match="the scope has no variable y"):
        fluid.core.get_variable_tensor(scope, "y")
