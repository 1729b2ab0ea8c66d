"""Features of older Python, NumPy and protobuf releases that scripts of Fluid's time expect.

``fluidjax run`` installs them in its process and in Python processes started by the script; importing fluidjax does
not.
"""

from __future__ import annotations

from fluidjax.legacy import (
    numpy_arguments,
    numpy_arrays,
    numpy_names,
    package_names,
    protobuf_stubs,
    pyarrow_serialization,
    python_arguments,
    python_names,
    unittest_numbers,
    wider_numbers,
)


def install() -> None:
    """Install everything, without warnings, leaving existing names alone. Idempotent."""
    python_names.install()
    python_arguments.install()
    numpy_names.install()
    numpy_arguments.install()
    numpy_arrays.install()
    package_names.install()
    protobuf_stubs.install()
    pyarrow_serialization.install()
    unittest_numbers.install()
    wider_numbers.install()
