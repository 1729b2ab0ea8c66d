"""Rooms that few scripts use are imported when they are asked for."""

import subprocess
import sys

import pytest

import fluidjax as fluid

FRESH = """
import sys
import fluidjax as fluid

rooms = {home for home in fluid._LATER.values()}
early = sorted(rooms & set(sys.modules))
assert not early, f"imported with fluidjax: {early}"
assert "jax._src.pallas.core" not in sys.modules, "jax.extend is imported where it is used"
assert fluid.core.get_pass("constant_folding_pass").type() == "constant_folding_pass"
for name in ("fluidjax.distributed.ops", "fluidjax.drawing", "fluidjax.inference.predictor", "fluidjax.ir"):
    assert name not in sys.modules, f"imported with fluidjax: {name}"
assert set(fluid._LATER) <= set(dir(fluid))
assert fluid.contrib.__name__ == "fluidjax.contrib" and "fluidjax.contrib" in sys.modules
assert "contrib" in vars(fluid)

from fluidjax.distributed import SERVICES
from lowering.engine import host
before = set(host._services)
assert host.service("listen_and_serv").__module__ == "fluidjax.distributed.ops"
assert set(host._services) - before == set(SERVICES)

from fluidjax import DistributeTranspiler
assert DistributeTranspiler is fluid.transpiler.DistributeTranspiler
"""


def test_a_fresh_process_imports_them_later():
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", sorted(fluid._LATER))
def test_each_name_is_there(name):
    found = getattr(fluid, name)
    assert getattr(found, "__name__", name).rsplit(".", 1)[-1] == name
    assert name in vars(fluid)


def test_a_name_that_is_close_is_told():
    with pytest.raises(AttributeError, match="did you mean check_grad"):
        fluid.check_grat  # noqa: B018
