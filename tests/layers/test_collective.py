"""fluid.layers.collective: the ops that it writes, and that they hand values on over one device."""

import numpy as np
import pytest

import fluidjax as fluid

collective = fluid.layers.collective
COMMON = {"ring_id": 0, "use_calc_stream": False}
CASES = {  # layer -> (arguments, op, attributes, the output's name)
    "_allreduce": ({"reduce_type": "max"}, "allreduce", {"reduce_type": 2, "sync_mode": False}, "x.tmp_0"),
    "_broadcast": ({"root": 0}, "broadcast", {"root": 0, "sync_mode": False}, "x"),
    "_c_allreduce": ({"reduce_type": "min"}, "c_allreduce_min", COMMON, "x.c_allreduce_min_0"),
    "_c_broadcast": ({}, "c_broadcast", {"root": 0, **COMMON}, "x"),
    "_c_allgather": ({"nranks": 1}, "c_allgather", {"nranks": 1, **COMMON}, "x.c_allgather_0"),
    "_c_reducescatter": ({"nranks": 1}, "c_reducescatter", {"nranks": 1, **COMMON}, "x.c_reducescatter_0"),
    "_c_sync_calc_stream": ({}, "c_sync_calc_stream", {}, "x"),
    "_c_sync_comm_stream": ({"ring_id": 1}, "c_sync_comm_stream", {"ring_id": 1}, "x"),
}


@pytest.mark.parametrize("layer", CASES)
def test_over_one_device(layer):
    arguments, op_type, attrs, name = CASES[layer]
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [4, 2], "float32")
        out = getattr(collective, layer)(x, **arguments)
        (op,) = fluid.default_main_program().global_block().ops
        assert (op.type, out.name, out.shape) == (op_type, name, (4, 2))
        assert {k: v for k, v in op.all_attrs().items() if not k.startswith("op_")} == attrs
        (value,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": data}, fetch_list=[out])
    np.testing.assert_array_equal(value, data)


def test_into_a_variable():
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [4, 2], "float32")
        out = x.block.create_var(name="out", shape=[4, 2], dtype="float32")
        assert collective._allreduce(x, out) is out and collective._c_allreduce(x, out) is out


def test_what_they_refuse():
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [4, 2], "float32")
        for layer in (collective._allreduce, collective._c_allreduce):
            with pytest.raises(TypeError, match="reduce type can only be"):
                layer(x, reduce_type="avg")
        with pytest.raises(ValueError, match="cannot be evenly divided"):
            collective._c_reducescatter(x, 3)
