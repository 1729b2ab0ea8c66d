"""MATLAB files of data sets, as SciPy writes them."""

import io

import numpy as np
import pytest

from fluidjax.base.optional import optional
from fluidjax.paddle.dataset import matlab


@pytest.mark.parametrize("dtype", ["u1", "i2", "u2", "i4", "f4", "f8", "i8"])
@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_of_numbers(tmp_path, dtype, compressed):
    scipy = optional("scipy.io", "this test", "scipy")
    arrays = {"labels": np.arange(1, 7, dtype=dtype).reshape(2, 3), "x": np.array([[5]], dtype)}
    scipy.savemat(out := io.BytesIO(), arrays, do_compression=compressed)
    (tmp_path / "a.mat").write_bytes(out.getvalue())
    found = matlab.load(str(tmp_path / "a.mat"))
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
