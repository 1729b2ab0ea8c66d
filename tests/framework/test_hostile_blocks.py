"""Programs whose blocks would take forever: refused while they are read."""

import pytest

import fluidjax as fluid
from fluidjax.base.enums import AttrType
from fluidjax.proto import framework_pb2 as pb
from tests.effort import at_most_calls


def nested(levels: int, ops: int) -> bytes:
    """Block after block inside one another, each run by ``ops`` ops of the one before."""
    program = pb.ProgramDesc()
    for level in range(levels):
        block = program.blocks.add(idx=level, parent_idx=level - 1)
        for _ in range(ops if level + 1 < levels else 0):
            op = block.ops.add(type="conditional_block")
            op.attrs.add(name="sub_block", type=int(AttrType.BLOCK), block_idx=level + 1)
    return program.SerializeToString()


@pytest.mark.parametrize(
    ("levels", "ops", "message"), [(3000, 1, "is inside"), (40, 2, "belongs to two ops")], ids=["deep", "shared"]
)
def test_blocks_are_bounded(levels, ops, message):
    data = nested(levels, ops)
    with at_most_calls(10_000, "read the program"), pytest.raises(ValueError, match=message):
        fluid.Program.parse_from_string(data)


def test_some_nesting_is_fine():
    assert fluid.Program.parse_from_string(nested(20, 1)).num_blocks == 20
