"""A persistable variable that branches write keeps its value where none of them runs."""

from __future__ import annotations

import numpy as np

import fluidjax as fluid

layers = fluid.layers


def test_nested_switches_change_a_counter_in_place() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        clear = fluid.data("clear", [1], "bool")
        count = layers.create_global_var([1], 0, "int32", persistable=True, name="count")
        one, zero = (layers.fill_constant([1], "int32", value) for value in (1, 0))
        with layers.Switch() as outer:
            with outer.case(clear):
                layers.assign(zero, count)
            with outer.default():
                full = layers.less_than(one, count + 1)
                with layers.Switch() as inner:
                    with inner.case(full):
                        layers.assign(zero, count)
                    with inner.default():
                        layers.increment(count)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        flags = [False, False, False, True, False]
        seen = [int(exe.run(main, feed={"clear": np.array([f])}, fetch_list=[count])[0][0]) for f in flags]
    assert seen == [1, 0, 1, 0, 1]
