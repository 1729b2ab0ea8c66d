"""What ops cost: counted by XLA, op by op, without running them."""

from __future__ import annotations

import numpy as np

import fluidjax as fluid


def test_each_op_is_counted_once():
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        x = fluid.data("x", [None, 16])
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.dropout(x, 0.3), 32))
        fluid.optimizer.SGD(0.1).minimize(loss)
        main = fluid.default_main_program()
        fluid.Executor().run(fluid.default_startup_program())
        found = fluid.export.op_costs(main, {"x": np.ones((8, 16), "float32")}, [loss])
        assert [cost.op for cost in found] == [f"{op.type} (#{i})" for i, op in enumerate(main.global_block().ops)]
        product = next(cost for cost in found if cost.op.startswith("mul "))
        assert product.output == "float32[8, 32]"
        assert product.flops == 2 * 8 * 16 * 32 and product.bytes == 4 * (8 * 16 + 16 * 32 + 8 * 32)
        lines = str(found).splitlines()
        assert lines[0].split() == ["op", "output", "FLOP", "bytes"] and lines[-1].startswith("all")
        assert "8,192" in str(found) and "<td class=number>8,192</td>" in found._repr_html_()
        test = main.clone(for_test=True)
        half = fluid.export.op_costs(test, {"x": np.ones((4, 16), "float32")}, [loss])
        assert next(cost.flops for cost in half if cost.op.startswith("mul ")) == product.flops / 2
