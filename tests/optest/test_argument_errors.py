"""What a wrong argument raises where Paddle 1.8.5's own tests look: the kind of error, and its words."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers


@pytest.fixture
def loss():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield layers.mean(layers.fc(fluid.data("x", [None, 3]), 2))


def test_ops_without_a_type_and_of_none_that_is_known():
    block = fluid.Program().global_block()
    with pytest.raises(ValueError) as error:
        block.append_op()
    assert str(error.value) == "`type` to initialized an Operator can not be None."
    with pytest.raises(ValueError) as error:
        block.append_op(type="no_such_op")
    assert str(error.value) == 'Operator "no_such_op" has not been registered.'
    assert "test_argument_errors.py" in error.value.__notes__[0]


@pytest.mark.parametrize("take", ["_copy_param_info_from", "_copy_dist_param_info_from", "_copy_data_info_from"])
def test_what_is_taken_over_comes_from_a_program(take):
    with pytest.raises(TypeError, match=f"{take}.. needs to pass in a source Program"):
        getattr(fluid.Program(), take)("program")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"parameter_list": "fc_0.w_0"}, TypeError),
        ({"parameter_list": ["fc_0.w_0", 3]}, TypeError),
        ({"no_grad_set": "x"}, TypeError),
        ({"no_grad_set": [np.zeros(2)]}, TypeError),
    ],
)
def test_parameters_and_constants_are_listed(loss, arguments, kind):
    with pytest.raises(kind):
        fluid.backward.append_backward(loss, **arguments)
    with pytest.raises(kind):
        fluid.optimizer.SGD(0.1).minimize(loss, **arguments)


def test_callbacks_are_functions_and_losses_variables(loss):
    with pytest.raises(ValueError, match="callable"):
        fluid.backward.append_backward(loss, callbacks=[3])
    with pytest.raises(AssertionError, match="The loss should be an Variable"):
        fluid.optimizer.SGD(0.1).minimize("loss")


def test_rates_are_not_negative():
    with fluid.dygraph.guard():
        for make in (
            lambda: fluid.dygraph.MultiStepDecay(-1, [2, 3]),
            lambda: fluid.dygraph.StepDecay(-0.5, 3),
            lambda: fluid.dygraph.LambdaDecay(-1.0, lambda epoch: 1.0),
        ):
            with pytest.raises(ValueError, match="Invalid learning rate: -"):
                make()
        assert fluid.dygraph.StepDecay(0.0, 3).base_lr == 0


def test_numbers_that_are_none_are_an_unmet_condition():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        out = layers.log(fluid.data("x", [2]))
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    try:
        with pytest.raises(fluid.core.EnforceNotMet, match="2 NaN"):
            fluid.Executor(fluid.CPUPlace()).run(main, feed={"x": -np.ones(2, "float32")}, fetch_list=[out])
    finally:
        fluid.set_flags({"FLAGS_check_nan_inf": False})


def test_settings_of_optimizers_are_given():
    optimizer = fluid.optimizer
    for make, kind in (
        (lambda: optimizer.SGD(None), AssertionError),
        (lambda: optimizer.Momentum(0.1, None), AssertionError),
        (lambda: optimizer.Adam(0.1, beta1=None), AssertionError),
        (lambda: optimizer.Adamax(0.1, epsilon=None), AssertionError),
        (lambda: optimizer.DecayedAdagrad(0.1, decay=None), AssertionError),
        (lambda: optimizer.RMSProp(0.1, rho=None), ValueError),
        (lambda: optimizer.Adadelta(0.1, epsilon=None), ValueError),
    ):
        with pytest.raises(kind, match="is not set"):
            make()


def test_settings_of_data_sets_are_read_back():
    dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    assert (dataset.parse_ins_id, dataset.queue_num, dataset.merge_by_sid) == (False, None, True)
    dataset.set_parse_ins_id(True)
    dataset.set_queue_num(3)
    dataset.set_fleet_send_batch_size()
    assert (dataset.parse_ins_id, dataset.queue_num, dataset.fleet_send_batch_size) == (True, 3, 1024)
    dataset.set_generate_unique_feasigns(True, 15)
    dataset.generate_local_tables_unlock(0, 11, 1, 25, 15)
    dataset.set_enable_pv_merge(True)
    for step in (dataset.preprocess_instance, dataset.postprocess_instance, lambda: dataset.set_current_phase(1)):
        step()
    found = dataset.gen_uni_feasigns, dataset.local_shard_num, dataset.enable_pv_merge, dataset.get_pv_data_size()
    assert found == (True, 15, True, 0)
    stream = fluid.DatasetFactory().create_dataset("FileInstantDataset")
    for shuffle in (stream.local_shuffle, stream.global_shuffle):
        with pytest.raises(NotImplementedError, match="FileInstantDataset does not support"):
            shuffle()


def test_layers_look_at_their_variables_first():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 1], "int64")
        count = fluid.data("count", [None, 1], "int32")
        for wrong in (
            lambda: layers.hsigmoid([1], label, 4),
            lambda: layers.multiplex(x, label),
            lambda: layers.multiplex([x, 3], label),
            lambda: layers.teacher_student_sigmoid_loss(count, count),
        ):
            with pytest.raises(TypeError):
                wrong()
        with pytest.raises(ValueError, match="at least 2"):
            layers.multiplex([x], label)


def test_a_rank_table_takes_a_list_of_one_variable():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4], lod_level=1)
        table = layers.control_flow.lod_rank_table([x])
        assert table.op.input("X") == [x.name]
        with pytest.raises(TypeError):
            layers.control_flow.lod_rank_table([np.zeros(3)])


def test_parts_of_a_complex_variable_bear_one_name():
    with fluid.dygraph.guard():
        name = fluid.dygraph.to_variable(np.array([1 + 1j])).name
    assert name["real"].removesuffix(".real") == name["imag"].removesuffix(".imag") != ""
    assert name["real"].endswith(".real")


def test_cells_of_recurrent_networks_look_at_their_variables():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, ids, array = fluid.data("x", [None, 4]), fluid.data("ids", [None, 4], "int32"), np.zeros((2, 4), "float32")
        steps = fluid.data("steps", [None, None, 4])
        gru, lstm = layers.GRUCell(4), layers.LSTMCell(4)
        for wrong in (
            lambda: layers.GRUCell(4, dtype="int32"),
            lambda: layers.LSTMCell(4.0),
            lambda: gru(array, x),
            lambda: gru(x, array),
            lambda: gru(ids, x),
            lambda: gru(x, ids),
            lambda: lstm(array, [x, x]),
            lambda: lstm(x, [x, ids]),
            lambda: lstm(x, (x, x)),
            lambda: layers.rnn(gru, array),
            lambda: layers.rnn(gru, [array]),
            lambda: layers.rnn(gru, steps, initial_states=array),
            lambda: layers.rnn(lstm, steps, initial_states=[array, array]),
            lambda: layers.rnn(gru, steps, sequence_length=np.ones(2)),
        ):
            with pytest.raises(TypeError):
                wrong()
