"""contrib.slim's Compressor and its strategies, beside what Paddle 1.8.5 makes of the same network."""

import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.contrib.slim.core import Compressor, ConfigFactory, Strategy
from fluidjax.contrib.slim.core import batches as readers
from fluidjax.contrib.slim.graph import GraphWrapper
from fluidjax.contrib.slim.nas import ControllerServer, SearchAgent
from fluidjax.contrib.slim.prune import StructurePruner
from fluidjax.contrib.slim.prune.related import cuts
from fluidjax.contrib.slim.prune.sensitivity import fitted, ratio_at, ratios
from fluidjax.contrib.slim.searcher import SAController
from tests.contrib.compressed import MODES, batches, compressor, network, outcome

pytestmark = pytest.mark.usefixtures("compiled_quickly")

RECORDED = json.loads((Path(__file__).parent / "data" / "compressor.json").read_text())
KEPT = "  checkpoint_path: ./kept\n"


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Strategies write into the current folder."""
    monkeypatch.chdir(tmp_path)
    with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        yield


@pytest.mark.parametrize("mode", sorted(MODES))
def test_it_gives_what_paddle_gives(mode, tmp_path):
    found, wanted = outcome(fluid, compressor(fluid, mode, str(tmp_path))), RECORDED[mode]
    assert found["flops"] == wanted["flops"]
    assert found["numbers"] == wanted["numbers"]
    assert found["shapes"] == wanted["shapes"]
    assert found["tried"] == wanted["tried"]
    rtol = 1e-3 if mode == "quantized" else 1e-5  # a last bit becomes a whole step of 8 bits, now and then
    for kind in ("metrics", "magnitudes"):
        assert found[kind].keys() == wanted[kind].keys()
        for name, value in wanted[kind].items():
            np.testing.assert_allclose(found[kind][name], value, rtol=rtol, err_msg=name)


@pytest.mark.filterwarnings("ignore:the program has attributes")  # quantization_type, which Fluid's passes set
def test_a_quantized_network_is_written_in_three_forms(tmp_path):
    compressor(fluid, "quantized", str(tmp_path)).run()
    exe, weights = fluid.Executor(), {}
    for form in ("float", "int8", "mobile"):
        with fluid.scope_guard(fluid.Scope()):
            program, feeds, fetches = fluid.io.load_inference_model(form, exe, "model", "weights")
            stored = [p.name for p in program.list_vars() if p.persistable and p.name.startswith("conv_two_weights")]
            weights[form] = np.array(fluid.global_scope().find_var(stored[0]).get_tensor())
            if form == "float":
                assert exe.run(program, feed={feeds[0]: fed()["image"]}, fetch_list=fetches)[0].shape == (4, 10)
    assert weights["int8"].dtype == np.int8
    np.testing.assert_array_equal(weights["mobile"], weights["int8"])
    np.testing.assert_array_equal(weights["float"], weights["int8"])


@pytest.mark.parametrize("mode", ["uniform", "sensitive", "quantized"])
def test_a_compression_goes_on_from_its_checkpoint(mode, tmp_path):
    whole = compressor(fluid, mode, str(tmp_path), KEPT)
    assert outcome(fluid, whole)["numbers"] == RECORDED[mode]["numbers"]
    last = {n: np.array(fluid.global_scope().find_var(n).get_tensor()) for n in RECORDED[mode]["shapes"]}
    with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        again = compressor(fluid, mode, str(tmp_path), KEPT)
        graph = again.run()  # nothing is left to do
        assert again.context.epoch_id == again.epoch
        assert again.context.eval_results == whole.context.eval_results
        assert {p.name(): list(p.shape()) for p in graph.all_parameters()} == RECORDED[mode]["shapes"]
        for name, value in last.items():
            np.testing.assert_array_equal(np.array(fluid.global_scope().find_var(name).get_tensor()), value)
        exe = fluid.Executor()
        assert exe.run(graph.program, feed=fed(), fetch_list=list(graph.out_nodes.values()))[0].shape == (1,)


def fed():
    images, labels = zip(*next(batches(1, 5)()), strict=True)
    return {"image": np.stack(images), "label": np.stack(labels)}


@pytest.mark.filterwarnings("ignore:save_inference_model specified the param `program_only`")
def test_checkpoints_hold_the_evaluated_network(tmp_path):
    made = compressor(fluid, "uniform", str(tmp_path), KEPT)
    made.prune_infer_model = [["image", "label"], [made.eval_graph.out_nodes["loss"]]]
    made.run()
    assert sorted(os.listdir("kept/1")) == ["context", "eval_model", "model", "strategies"]
    assert sorted(os.listdir("kept/1/eval_model")) == ["__model__", "__model__.infer", "__params__"]
    exe = fluid.Executor()
    for file in ("__model__", "__model__.infer"):
        with fluid.scope_guard(fluid.Scope()):
            program, _, fetches = fluid.io.load_inference_model("kept/1/eval_model", exe, file, "__params__")
            assert np.isfinite(exe.run(program, feed=fed(), fetch_list=fetches)[-1]).all()


def test_init_model_is_a_smaller_network(tmp_path):
    compressor(fluid, "uniform", str(tmp_path), KEPT).run()
    with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        made = compressor(fluid, "distilled", str(tmp_path), "  init_model: ./kept/1/model\n")
        made.strategies = []
        graph = made.run()
        assert graph.numel_params() == RECORDED["uniform"]["numbers"]


def test_an_error_in_an_epoch_ends_the_compression(tmp_path):
    class Failing(Strategy):
        def on_epoch_begin(self, context):
            raise ArithmeticError("mine")

    made = compressor(fluid, "uniform", str(tmp_path))
    made._add_strategy(Failing())
    with pytest.raises(ArithmeticError, match="mine"):
        made.run()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("strategies:\n  one: {class: UniformPruningStrategy}\n", "write UniformPruneStrategy"),
        ("compressor: {epoch: 1, strategies: [two]}\n", "received: 'two'"),
    ],
)
def test_what_a_configuration_cannot_mean(text, message):
    Path("bad.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        ConfigFactory("bad.yaml")


def test_configurations_run_nothing():
    Path("bad.yaml").write_text("version: !!python/object/apply:os.mkdir [made]\n")
    with pytest.raises(Exception, match="could not determine a constructor"):
        ConfigFactory("bad.yaml")
    assert not os.path.exists("made")
    with pytest.raises(FileNotFoundError, match="give its path"):
        ConfigFactory("none.yaml")


def test_a_configuration_includes_others():
    Path("pruners.yaml").write_text(
        "pruners:\n  p: {class: StructurePruner, pruning_axis: {'*': 0}, criterions: none}\n"
    )
    Path("all.yaml").write_text(
        "version: 1.0\ninclude: [pruners.yaml]\nstrategies:\n  s: {class: UniformPruneStrategy, pruner: p, other: 1}\n"
    )
    factory = ConfigFactory("all.yaml")
    assert factory.version == 1
    assert factory.instance("s").pruner is factory.instance("p")
    assert factory.instance("p").criterions is None
    assert factory.instance("q") is None


def test_wrong_feed_lists_are_told():
    with pytest.raises(AssertionError, match="train_feed_list should be a list of tuple"):
        Compressor(None, fluid.global_scope(), fluid.Program(), train_feed_list={"image": "image"})


def test_a_graph_knows_its_neighbours():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        names = network(fluid)
    graph = GraphWrapper(main, [("image", "image")], [("loss", names["loss"])])
    filters = graph.var("conv_one_weights")
    (first,) = filters.inputs()
    assert first.type() == "conv2d"
    assert filters.outputs() == []
    assert [op.type() for op in graph.next_ops(first)] == ["elementwise_add"]
    assert graph.pre_ops(graph.next_ops(first)[0]) == [first]
    assert graph.get_param_by_op(first) == [filters]
    assert first.inputs("Input") == [graph.var("image")]
    assert first in graph.var("image").inputs()
    assert graph.clone().program is not main
    assert graph.is_parameter(filters)
    assert not graph.is_persistable(graph.var("image"))
    with pytest.raises(AssertionError, match="has no parameter"):
        graph.get_param_by_op(next(op for op in graph.ops() if op.type() == "softmax"))


def test_pruning_follows_channels_through_joins():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 3, 4, 4])
        one, two = (fluid.layers.conv2d(x, 4, 1, param_attr=n, bias_attr=False) for n in ("one", "two"))
        joined = fluid.layers.concat([one, fluid.layers.relu(two)], axis=1)
        fluid.layers.conv2d(joined, 2, 1, param_attr="after", bias_attr=False)
        fluid.layers.fc(joined, 5, param_attr="flat", bias_attr=False)
    graph = GraphWrapper(main)
    found = {cut.param.name(): (cut.axis, list(cut.indices)) for cut in cuts(graph, graph.var("two"), np.array([1, 3]))}
    rows = [*range(5 * 16, 6 * 16), *range(7 * 16, 8 * 16)]
    assert found == {"two": (0, [1, 3]), "after": (1, [5, 7]), "flat": (0, rows)}


def test_what_cannot_be_pruned_is_told():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 4, 4, 4])
        first = fluid.layers.conv2d(x, 4, 1, param_attr="first", bias_attr="bias")
        fluid.layers.conv2d(first, 4, 1, groups=2, param_attr="grouped", bias_attr=False)
    graph = GraphWrapper(main)
    with pytest.raises(ValueError, match="read by elementwise_add"):
        list(cuts(graph, graph.var("bias"), np.array([0])))
    with pytest.raises(ValueError, match="grouped convolution"):
        list(cuts(graph, graph.var("first"), np.array([0])))
    with pytest.raises(ValueError, match="received: 'l2_norm'"):
        StructurePruner({"*": 0}, {"*": "l2_norm"}).cal_pruned_idx("w", np.ones((2, 2)), 0.5)


def test_pruned_slices_are_the_smallest(rng):
    param, pruner = rng.standard_normal((6, 3)), StructurePruner({"*": 0, "w": 1}, {"*": "l1_norm"})
    indices = pruner.cal_pruned_idx("v", param, 0.5)
    left = pruner.prune_tensor(param, indices, 0)
    norms = np.abs(param).sum(1)
    assert np.abs(left).sum(1).min() >= norms[indices].max()
    lazily = pruner.prune_tensor(param, indices, 0, lazy=True)
    np.testing.assert_array_equal(lazily[indices], 0)
    np.testing.assert_array_equal(np.delete(lazily, indices, 0), left)
    assert pruner.prune_tensor(param, pruner.cal_pruned_idx("w", param, 0.34), 1).shape == (6, 2)


def test_a_layer_loses_as_much_as_it_may():
    entry = {"pruned_percent": ratios(0.2), "loss": [r**3 for r in ratios(0.2)]}
    assert entry["pruned_percent"] == [0.2, 0.4, 0.6, 0.8]
    assert ratio_at(fitted(entry), 0.125, entry) == pytest.approx(0.5, abs=1e-6)
    assert ratio_at(fitted(entry), 2.0, entry) == 0.8


def test_samples_stay_the_same(tmp_path):
    read = readers.sampled(batches(12, 3), 0.5, str(tmp_path / "cache"), 4)
    first, again = list(read()), list(read())
    assert 0 < len(first) < 12
    for one, other in zip(first, again, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a[0], b[0])
            np.testing.assert_array_equal(a[1], b[1])
    other = list(readers.sampled(batches(12, 3), 0.5, str(tmp_path / "other"), 5)())
    np.testing.assert_array_equal(other[0][0][0], first[0][0][0])  # the first batch is always taken
    with pytest.raises(TypeError, match="a reader of lists of tuples"):
        list(readers.sampled(lambda: iter([[{"image": 1}]]), 0.5, str(tmp_path / "feeds"), 1)())


def test_annealing_changes_one_token_within_its_range():
    controller = SAController(max_iter_number=50)
    controller.reset([4, 1, 5], [0, 0, 0], lambda tokens: sum(tokens) < 3)
    for _ in range(30):
        tokens = controller.next_tokens()
        assert sum(n != 0 for n in tokens) <= 1
        assert tokens[1] == 0
        assert all(0 <= n < size for n, size in zip(tokens, [4, 1, 5], strict=True))
        assert sum(tokens) < 3
    controller.update([1, 0, 0], 2.0)
    controller.update([2, 0, 0], 1.0)
    assert controller.best_tokens == [1, 0, 0]


def test_a_controller_answers_those_who_know_the_key():
    controller = SAController()
    controller.reset([3, 3], [1, 1])
    server = ControllerServer(controller, ("127.0.0.1", 0), search_steps=2, key="mine")
    server.start()
    agent = SearchAgent(server.ip(), server.port(), key="mine")
    assert len(agent.next_tokens()) == 2
    with pytest.raises(ConnectionError, match="keys are equal"):
        SearchAgent(server.ip(), server.port(), key="other").update([1, 1], 1.0)
    with socket.create_connection((server.ip(), server.port())) as noise:
        noise.sendall(b"\xff\xfe\t\t")
        assert noise.recv(10) == b""
    assert controller.steps == 0
    agent.update([0, 2], 0.5)
    agent.update([1, 2], 0.7)
    assert controller.best_tokens == [1, 2]
    server.close()
