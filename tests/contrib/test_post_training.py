"""Saved models that are rounded: thresholds, scales and weights are Paddle 1.8.5's for the same model and samples."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.contrib.slim.quantization import PostTrainingQuantization, WeightQuantization
from fluidjax.contrib.slim.quantization.thresholds import kl_threshold, rare_threshold
from tests.contrib.quantized import CPU, initialized, programs, types

SAMPLES = np.random.RandomState(5).rand(12, 1, 14, 14).astype("float32")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The net with its weights, saved for inference."""
    main, startup, test, out, _ = programs()
    folder = str(tmp_path_factory.mktemp("model"))
    with fluid.scope_guard(initialized(main, startup)):
        fluid.io.save_inference_model(folder, ["image"], [test.global_block().var(out.name)], fluid.Executor(CPU), test)
    return folder


def quantized(model, folder, **how):
    """(the ops that have thresholds, a row of the saved rounded model)."""
    exe, scope = fluid.Executor(CPU), fluid.Scope()
    with fluid.scope_guard(scope), fluid.unique_name.guard():
        rounding = PostTrainingQuantization(
            exe, scope, model, sample_generator=lambda: ((one,) for one in SAMPLES), batch_size=4, batch_nums=3, **how
        )
        program = rounding.quantize()
        rounding.save_quantized_model(str(folder))
    marked = ("out_threshold", "out_min", "out_max", "quantization_type")
    ops = [(op.type, {n: op.attr(n) for n in marked if op.desc.has_attr(n)}) for op in program.global_block().ops]
    with fluid.scope_guard(fluid.Scope()):
        with pytest.warns(UserWarning, match="attributes that its ops do not have"):
            loaded, feeds, fetches = fluid.io.load_inference_model(str(folder), exe)
        (found,) = exe.run(loaded, {feeds[0]: SAMPLES[:2]}, fetches)
    return [(name, attrs) for name, attrs in ops if attrs], found[0], types(program)


KL = [1.6841, 1.5251, 1.0497, 1.0497, 0.92917, 0.63042, 0.7042, 0.76064, 0.32422, 0.5643, 0.89044, 0.89116, 0.39592]
KL += [0.28248, 0.47571, 0.43726, 0.35405, 0.68756, 0.1052, 0.1052]
LARGEST = [1.692, 1.7633, 1.4423, 1.4423, 1.0798, 0.66009, 0.73193, 0.89024, 0.32561, 0.58319, 0.92668, 0.92668]
LARGEST += [0.42475, 0.34669, 0.47908, 0.438, 0.35869, 0.69045, 0.15939, 0.15939]
ROW = [0.106, 0.147, 0.056, 0.091, 0.086, 0.083]


@pytest.mark.parametrize(
    "algo, weights, expected", [("KL", "channel_wise_abs_max", KL), ("abs_max", "abs_max", LARGEST)]
)
def test_thresholds_and_the_rounded_model(model, tmp_path, algo, weights, expected):
    kind = "moving_average_abs_max"
    how = {"algo": algo, "weight_quantize_type": weights, "activation_quantize_type": kind}
    ops, row, kinds = quantized(model, tmp_path, **how)
    np.testing.assert_allclose([attrs["out_threshold"] for _, attrs in ops], expected, rtol=1e-4)
    mark = {"conv2d", "depthwise_conv2d", "mul"}
    assert {name for name, attrs in ops if "quantization_type" in attrs} == mark
    assert kinds.count(f"fake_quantize_{kind}") == 4  # one product is skipped by name, two convolutions share an input
    np.testing.assert_allclose(row[:6], ROW, atol=6e-4)


def test_ranges_are_written_down(model, tmp_path):
    ops, _, kinds = quantized(model, tmp_path, algo="min_max", quantizable_op_type=["conv2d"])
    assert ops[0][0] == "conv2d" and ops[0][1]["quantization_type"] == "post_min_max"
    np.testing.assert_allclose([ops[0][1]["out_min"], ops[0][1]["out_max"]], [-1.692, 1.683], rtol=1e-3)
    assert not any("quant" in kind for kind in kinds)


def test_all_ops_are_rounded_where_that_is_asked_for(model, tmp_path):
    ops, row, kinds = quantized(model, tmp_path, algo="KL", is_full_quantize=True, weight_quantize_type="abs_max")
    np.testing.assert_allclose([attrs["out_threshold"] for _, attrs in ops], KL, rtol=1e-4)
    assert kinds.count("fake_quantize_dequantize_moving_average_abs_max") > 5
    np.testing.assert_allclose(row[:6], ROW, atol=2e-3)


# The scales of the first filters, and the sum of the stored weights' magnitudes of a convolution and a product.
WEIGHTS = {
    (8, "channel_wise_abs_max", 0.0): ([0.003748, 0.0037134, 0.0035599, 0.0037173], 6261, 2522),
    (8, "abs_max", 0.0): ([0.003748], 6146, 2214),
    (16, "abs_max", 0.01): ([1.441e-05], None, None),
}


@pytest.mark.parametrize("how", sorted(WEIGHTS))
def test_weights_are_stored_in_few_bits(model, tmp_path, how):
    bits, kind, rate = how
    scales, filters, product = WEIGHTS[how]
    with fluid.scope_guard(fluid.Scope()):
        WeightQuantization(model).quantize_weight_to_int(
            str(tmp_path), weight_bits=bits, weight_quantize_type=kind, generate_test_model=True, threshold_rate=rate
        )
    exe, wide = fluid.Executor(CPU), {}
    for folder in ("quantized_model", "test_model"):
        with fluid.scope_guard(fluid.Scope()), pytest.warns(UserWarning, match="attributes that its ops do not have"):
            program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path / folder), exe)
            conv = next(op for op in program.global_block().ops if op.type == "conv2d")
            np.testing.assert_allclose(conv.attr("conv2d_0.w_0_quant_scale"), scales, rtol=1e-4)
            values = [np.array(fluid.global_scope().find_var(n).get_tensor()) for n in ("conv2d_0.w_0", "fc_0.w_0")]
            wide[folder] = values[0].astype(float)
            if folder == "test_model":
                (row, _) = exe.run(program, {feeds[0]: SAMPLES[:2]}, fetches)[0]
                np.testing.assert_allclose(row[:6], ROW, atol=2e-3)
            else:
                assert values[0].dtype == {8: np.int8, 16: np.int16}[bits]
                assert filters is None or [int(np.abs(v.astype(int)).sum()) for v in values] == [filters, product]
    back = wide["quantized_model"] * np.array(scales).reshape(-1, 1, 1, 1)
    np.testing.assert_allclose(wide["test_model"], back, rtol=1e-4)


def test_thresholds():
    values = np.abs(np.random.RandomState(0).randn(4000)).astype("float32")
    assert 0.5 * values.max() < kl_threshold(values) < values.max()
    assert rare_threshold(values, 0.0) == pytest.approx(values.max(), rel=1e-3)
    assert (values > rare_threshold(values, 0.01)).mean() == pytest.approx(0.01, abs=0.003)


@pytest.mark.parametrize(
    "how, words",
    [
        ({"executor": None}, "executor"),
        ({"model_dir": None}, "model_dir"),
        ({"sample_generator": None}, "sample_generator or batch_generator"),
        ({"batch_size": 0}, "batch_size"),
        ({"algo": "none"}, "algo"),
        ({"activation_quantize_type": "none"}, "activation_quantize_type"),
        ({"weight_quantize_type": "range_abs_max"}, "weight_quantize_type"),
        ({"quantizable_op_type": ["while"]}, "while is not supported"),
    ],
)
def test_what_is_missing_or_unknown_is_refused(how, words):
    given = {"executor": fluid.Executor(CPU), "model_dir": "model", "sample_generator": lambda: iter(())}
    with pytest.raises(AssertionError, match=words):
        PostTrainingQuantization(**{**given, **how})


@pytest.mark.parametrize(
    "how", [{"weight_bits": 4}, {"weight_quantize_type": "none"}, {"quantizable_op_type": ["matmul"]}]
)
def test_weights_that_cannot_be_rounded_so(how, tmp_path):
    with pytest.raises(AssertionError, match="not supported"):
        WeightQuantization("model").quantize_weight_to_int(str(tmp_path), **how)


class OfAProgram(PostTrainingQuantization):
    """As tools do it that have a program in memory: the fields are set and the steps called by hand."""

    def __init__(self, executor, scope, program, feed, folder):
        self._executor, self._place, self._scope, self._program = executor, executor.place, scope, program
        self._algo, self._quantizable_op_type = "KL", ["conv2d"]
        self._is_use_cache_file, self._cache_dir, self._sampling_data = True, str(folder), {}
        self._weight_quantize_type = "channel_wise_abs_max"
        self._quantized_weight_var_name, self._quantized_act_var_name = set(), set()
        self._quantized_var_kl_threshold = {}
        self.feed = feed

    def measure(self, batches):
        self._collect_target_varnames()
        self._set_activation_persistable()
        for count, batch in enumerate(batches):
            self._executor.run(self._program, feed={self.feed: batch}, fetch_list=[])
            self._sample_data(count)
        self._reset_activation_persistable()


def test_steps_are_called_by_tools_with_programs_of_their_own(model, tmp_path):
    exe, scope = fluid.Executor(CPU), fluid.Scope()
    with fluid.scope_guard(scope):
        program, feeds, _ = fluid.io.load_inference_model(model, exe)
        tool = OfAProgram(exe, scope, program, feeds[0], tmp_path)
        tool.measure([SAMPLES[:4], SAMPLES[4:8]])
    kept = program.global_block().ops[1].output("Output")[0]
    assert not program.global_block().var(kept).persistable
    assert sorted(path.name for path in tmp_path.glob(f"{kept}_*")) == [f"{kept}_0.npy", f"{kept}_1.npy"]
    assert np.load(tmp_path / f"{kept}_1.npy").shape == (4 * np.prod(program.global_block().var(kept).shape[1:]),)
    tool._quantized_act_var_name = {kept}
    tool._calculate_kl_threshold()
    assert 1 < tool._quantized_var_kl_threshold[kept] < 1.8
    assert len(tool._quantized_var_kl_threshold["conv2d_0.w_0"]) == program.global_block().var("conv2d_0.w_0").shape[0]
    assert not list(tmp_path.glob(f"{kept}_*"))
