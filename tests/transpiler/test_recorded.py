"""Every role's programs are those that Paddle 1.8.5 made of the same programs, op by op."""

import pytest

import fluidjax as fluid
from tests.transpiler.recorded import NAMES, Comparable, message, meta_of, transpiled

CASES = [(name, role) for name in NAMES for role in sorted(meta_of(name)["roles"])]


@pytest.mark.parametrize("name, role", CASES)
@pytest.mark.filterwarnings("ignore")  # of attributes that 1.8.5 writes and never reads
def test_a_role(name, role):
    if meta_of(name)["roles"][role].get("error"):
        with pytest.raises(fluid.core.EnforceNotMet, match="expected two dimensions"):
            transpiled(name, role)
        return
    main, startup, _ = transpiled(name, role)
    for file, found in ((role, main), (f"{role}_startup", startup)):
        ours, theirs = Comparable(found.proto), Comparable(message(name, file))
        for (_, _, mine), (_, _, wanted) in zip(ours.blocks, theirs.blocks, strict=True):
            assert [op[0] for op in mine] == [op[0] for op in wanted]
            assert mine == wanted
        assert [block[:2] for block in ours.blocks] == [block[:2] for block in theirs.blocks]
        assert ours.vars == theirs.vars


@pytest.mark.parametrize("name", [name for name in NAMES if meta_of(name).get("distributed_vars")])
@pytest.mark.filterwarnings("ignore")
def test_what_is_where(name):
    """What checkpoints ask for: parts, offsets and servers, of parameters and of optimizers' state."""
    meta = meta_of(name)
    _, _, transpiler = transpiled(name, "trainer_0")
    found = [
        {
            "origin": var.origin.name,
            "origin_shape": list(var.origin.shape),
            "slice": var.slice.name,
            "slice_shape": list(var.slice.shape),
            "is_slice": var.is_slice,
            "block_id": var.block_id,
            "offset": var.offset,
            "vtype": var.vtype,
            "endpoint": var.endpoint,
        }
        for var in transpiler.vars_overview.distributed_vars
    ]
    assert found == meta["distributed_vars"]
    if meta.get("geo_vars_info"):
        assert transpiler._get_vars_info() == meta["geo_vars_info"]
