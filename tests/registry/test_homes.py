"""Files of ops are imported when one of their ops is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lowering
from lowering.errors import RegistryError
from lowering.ops.homes import HOMES
from lowering.registry import table
from tools import homes


def test_the_list_is_right_and_complete() -> None:
    assert homes.page(homes.found()) == homes.PAGE.read_text(), "write it again: python -m tools.homes"


FRESH = """
import sys
import lowering
from lowering.ops.homes import HOMES

def files():
    return {name for name in sys.modules if name.startswith("lowering.ops.") and name.count(".") > 2}

assert not files(), files()
assert lowering.get_op("relu_grad").forward is lowering.get_op("relu")
few = files()
assert "lowering.ops.nn.activation" in few and len(few) < 20, few
assert lowering.has_op("relu_grad_grad_grad") and files() == few, "derived from what is here"

del HOMES["conv2d"], HOMES["conv2d_grad"]
assert lowering.get_op("conv2d").gradient is lowering.get_op("conv2d_grad"), "an op that the list lacks is found too"
assert len(files()) > 100 and not lowering.has_op("nothing")
"""


def test_a_fresh_process_imports_few() -> None:
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_nobody_finds_an_op_before_its_file_is_read() -> None:
    try:
        with table.arriving():
            lowering.op("half_read", out="Out")(lambda x: x)
            assert "half_read" not in table._REGISTRY, "another thread would take it as it is now"
            assert table.has_op("half_read"), "the file itself may use it"
        assert "half_read" in table._REGISTRY
    finally:
        table._REGISTRY.pop("half_read", None)


def test_an_op_of_ones_own_takes_no_type_of_a_file_that_nobody_read() -> None:
    with pytest.raises(RegistryError, match="registered twice: by lowering"):
        lowering.op("roi_align", out="Out")(lambda x: x)
    assert HOMES["roi_align"] == "detection.roi_pooling"
