"""Arrays of the host on their way to the device."""

import jax
import numpy as np
import pytest

from lowering.engine.x64 import with_x64
from lowering.host_arrays import to_device, zeros


@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "int8", "float64", "int64", "uint64"])
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("copy", [True, False])
def test_what_arrives_is_what_jax_moves(dtype, wide, copy):
    array = np.arange(12).reshape(3, 4).astype(dtype)
    with jax.enable_x64(wide):
        moved, wanted = to_device(array, copy=copy), jax.device_put(array)
    assert (moved.aval, moved.sharding, moved.committed) == (wanted.aval, wanted.sharding, wanted.committed)
    np.testing.assert_array_equal(np.asarray(moved), array)


def test_a_copy_has_memory_of_its_own():
    array = zeros([100], "float32")
    copy = to_device(array, copy=True)
    array[0] = 5.0
    assert copy[0] == 0.0


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other devices have memory of their own")
def test_an_aligned_array_is_used_where_it_is():
    array = zeros([100], "float32")
    assert with_x64(to_device, array).unsafe_buffer_pointer() == array.ctypes.data


def test_the_chosen_device_counts():
    device = jax.devices("cpu")[-1]
    with jax.default_device(device):
        assert to_device(zeros([3], "float32")).devices() == {device}
