"""fluid.contrib's units of recurrent nets, which are Layers."""

from __future__ import annotations

import numpy as np

import fluidjax as fluid

dg = fluid.dygraph


class Net(dg.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.lstm = fluid.contrib.BasicGRUUnit("g", 4), fluid.contrib.BasicLSTMUnit("l", 4)

    def forward(self, x, h, c):
        h, c = self.lstm(self.gru(x, h), h, c)
        return fluid.layers.reduce_sum(h * c)


def test_a_units_parameters_are_those_of_the_net_from_its_first_call_on() -> None:
    with dg.guard():
        net = Net()
        assert net.parameters() == [] and isinstance(net.gru, dg.Layer)
        x, h, c = [dg.to_variable(np.ones((2, size), "float32")) for size in (3, 4, 4)]
        loss = net(x, h, c)
        found = {name: (p.name, p.shape) for name, p in net.state_dict().items()}
        assert found == {
            "gru._gate_weight": ("g/BasicGRUUnit_0.w_0", [7, 8]),
            "gru._candidate_weight": ("g/BasicGRUUnit_0.w_1", [7, 4]),
            "gru._gate_bias": ("g/BasicGRUUnit_0.b_0", [8]),
            "gru._candidate_bias": ("g/BasicGRUUnit_0.b_1", [4]),
            "lstm._weight": ("l/BasicLSTMUnit_0.w_0", [8, 16]),
            "lstm._bias": ("l/BasicLSTMUnit_0.b_0", [16]),
        }
        loss.backward()
        assert all(np.abs(p.gradient()).sum() > 0 for p in net.parameters())
