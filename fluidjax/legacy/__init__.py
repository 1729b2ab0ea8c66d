"""What scripts of Fluid's time expect of Python, NumPy and protobuf, and newer versions no longer give.

``fluidjax run`` installs it into its process, and so do the Python processes that its script starts; an import of
fluidjax never does.
"""

from __future__ import annotations

from fluidjax.legacy import numpy_arrays, numpy_names, package_names, protobuf_stubs, python_names, unittest_numbers


def install() -> None:
    """Put it all in place, without warnings; what is there already stays. Calling it again does nothing."""
    python_names.install()
    numpy_names.install()
    numpy_arrays.install()
    package_names.install()
    protobuf_stubs.install()
    unittest_numbers.install()
