"""What Print shows: everything in each run, in the order of the program."""

import re

import numpy as np

import fluidjax as fluid
from fluidjax import layers


def test_all_is_printed_in_each_run_in_order(capfd) -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [None, 2])
        layers.Print(x, message="fed")
        layers.Print(layers.fill_constant([1], "float32", 7.0), message="known")
        total = layers.reduce_sum(x)
        layers.Print(total, message="computed")

        def body(step, value):
            value = value + 1.0
            layers.Print(value, message="in the loop")
            return step + 1, value

        step, limit = (layers.fill_constant([1], "int64", n) for n in (0, 2))
        _, last = layers.while_loop(lambda step, value: step < limit, body, [step, total])
        layers.Print(last, message="behind it")
    exe = fluid.Executor(fluid.CPUPlace())
    for number in (1.0, 2.0):
        exe.run(program, feed={"x": np.full((1, 2), number, "float32")}, fetch_list=[last])
        found = re.findall(r"\t([a-z ]+)\t|data: (\S+)", capfd.readouterr().out)
        said = [a or b for a, b in found]
        sums = [f"{2 * number + more:g}," for more in (0, 1, 2)]
        expected = ["fed", f"{number:g},{number:g},", "known", "7,", "computed", sums[0]]
        expected += ["in the loop", sums[1], "in the loop", sums[2], "behind it", sums[2]]
        assert said == expected
