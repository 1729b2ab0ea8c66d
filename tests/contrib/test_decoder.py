"""The contrib decoders: one StateCell in training and in beam search; the numbers are Paddle 1.8.5's."""

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.contrib.decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder

HIDDEN, WORDS, WIDTH = 4, 7, 4
CPU = fluid.CPUPlace()


def attr(name):
    return fluid.ParamAttr(name)


def make_cell(context):
    cell = StateCell(inputs={"x": None}, states={"h": InitState(init=context, need_reorder=True)}, out_state="h")

    @cell.state_updater
    def update(cell):
        both = [cell.get_state("h"), cell.get_input("x")]
        new = layers.fc(both, HIDDEN, act="tanh", param_attr=[attr("u1"), attr("u2")], bias_attr=attr("ub"))
        cell.set_state("h", new)

    return cell


def training():
    words = fluid.data("trg", [-1, 1], "int64", lod_level=1)
    cell = make_cell(fluid.data("ctx", [-1, HIDDEN]))
    embedded = layers.embedding(words, size=[WORDS, WIDTH], param_attr=attr("emb"))
    decoder = TrainingDecoder(cell)
    with decoder.block():
        decoder.state_cell.compute_state(inputs={"x": decoder.step_input(embedded)})
        scores = layers.fc(cell.get_state("h"), WORDS, act="softmax", param_attr=attr("ow"), bias_attr=attr("ob"))
        cell.update_states()
        decoder.output(scores)
    return [decoder()]


def searching(**settings):
    ids, scores = fluid.data("ids", [-1, 1], "int64", lod_level=2), fluid.data("sc", [-1, 1], lod_level=2)
    cell = make_cell(fluid.data("ctx", [-1, HIDDEN]))
    settings = {"topk_size": 5, "sparse_emb": False, "max_len": 4, "beam_size": 2} | settings
    decoder = BeamSearchDecoder(cell, ids, scores, WORDS, WIDTH, **settings)
    decoder.decode()
    return list(decoder())


def run(build, feed):
    """Run with parameters drawn as they were for Paddle; ``feed`` draws what is left."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        found = build()
    draw = np.random.RandomState(0)
    exe = fluid.Executor(CPU)
    with fluid.scope_guard(scope):
        exe.run(startup)
        for name in sorted(var.name for var in main.global_block().all_parameters()):
            tensor = scope.find_var(name).get_tensor()
            tensor.set((draw.rand(*tensor.shape()) * 3 - 1.5).astype("float32"), CPU)
        return exe.run(main, feed=feed(draw), fetch_list=found, return_numpy=False)


def test_training_decoder_gives_paddles_numbers():
    words = fluid.create_lod_tensor(np.array([[1], [2], [3], [4], [5]], "int64"), [[2, 3]], CPU)
    (scores,) = run(training, lambda draw: {"ctx": draw.rand(2, HIDDEN).astype("float32"), "trg": words})
    assert scores.lod() == [[0, 2, 5]]
    first = [
        [0.227134, 0.05267029, 0.05258999],
        [0.0077956, 0.0741135, 0.00581841],
        [0.5627023, 0.01300495, 0.10983295],
    ]
    np.testing.assert_allclose(np.array(scores)[:3, :3], first, rtol=1e-5)


def test_beam_search_decoder_gives_paddles_sentences():
    def feed(draw):
        lod = [[1, 1], [1, 1]]
        return {
            "ctx": draw.rand(2, HIDDEN).astype("float32"),
            "ids": fluid.create_lod_tensor(np.zeros((2, 1), "int64"), lod, CPU),
            "sc": fluid.create_lod_tensor(np.ones((2, 1), "float32"), lod, CPU),
        }

    ids, scores = run(searching, feed)
    assert ids.lod() == scores.lod() == [[0, 2, 4], [0, 5, 10, 15, 20]]
    sentences = [[0, 0, 5, 4, 3], [0, 0, 5, 5, 5], [0, 0, 5, 4, 3], [0, 5, 5, 3, 0]]
    np.testing.assert_array_equal(np.array(ids).reshape(4, 5), sentences)
    last = [-1.4416955, -2.183423, -2.0773363, -2.1751623]
    np.testing.assert_allclose(np.array(scores).reshape(4, 5)[:, -1], last, rtol=1e-5)


def test_inputs_that_stay_are_carried_along():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        searching(input_var_dict={"x": fluid.data("kept", [-1, WIDTH])}, end_id=3)
    (step,) = [block for block in main.blocks if any(op.type == "beam_search" for op in block.ops)]
    assert [op.type for op in step.ops].count("sequence_expand") == 2
    (last,) = [op for op in main.global_block().ops if op.type == "beam_search_decode"]
    (search,) = [op for op in step.ops if op.type == "beam_search"]
    assert (last.attr("end_id"), search.attr("end_id")) == (3, 1)


def test_init_state_boots_from_a_batch():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        state = InitState(init_boot=fluid.data("x", [-1, 3]), shape=[-1, 5], value=2.0, dtype="float64")
        assert (tuple(state.value.shape), state.need_reorder) == ((-1, 5), False)
        with pytest.raises(ValueError, match="neither init nor init_boot"):
            InitState(shape=[1])


def test_a_cell_serves_several_decoders():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        cell = make_cell(fluid.data("ctx", [-1, HIDDEN]))
        embedded = fluid.data("emb", [-1, WIDTH], lod_level=1)
        for _ in range(2):
            decoder = TrainingDecoder(cell)
            with decoder.block():
                cell.compute_state(inputs={"x": decoder.step_input(embedded)})
                decoder.output(cell.out_state())
                cell.update_states()
            assert decoder().shape[-1] == HIDDEN


def test_state_cell_complains():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        context = fluid.data("ctx", [-1, HIDDEN])
        with pytest.raises(ValueError, match="must be an InitState"):
            StateCell({}, {"h": context}, "h")
        with pytest.raises(ValueError, match="out_state 'k'"):
            StateCell({}, {"h": InitState(context)}, "k")
        cell = StateCell({"x": None}, {"h": InitState(context)}, "h")
        with pytest.raises(ValueError, match="no state 'c'"):
            cell.get_state("c")
        with pytest.raises(ValueError, match="no value for input 'x'"):
            cell.get_input("x")
        with pytest.raises(ValueError, match="no input 'y'"):
            cell.compute_state({"y": context})
        with pytest.raises(ValueError, match="no updater"):
            cell.compute_state({"x": context})


def test_decoders_complain_outside_their_blocks():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        context = fluid.data("ctx", [-1, HIDDEN])
        cell = make_cell(context)
        decoder = TrainingDecoder(cell)
        with pytest.raises(ValueError, match="in a decoder already"):
            TrainingDecoder(cell)
        with pytest.raises(ValueError, match="outside the block"):
            decoder.step_input(context)
        with pytest.raises(ValueError, match="no output before"):
            decoder()
        search = BeamSearchDecoder(make_cell(context), context, context, WORDS, WIDTH)
        with pytest.raises(ValueError, match="outside the block"):
            search.read_array(init=context)
        with pytest.raises(ValueError, match="no output before"):
            search()
