"""Random ops: distributions, repeatability, and few compiled kernels."""

import jax
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from lowering import host_arrays
from lowering.draws import host_bits, host_kernels, random_bits
from lowering.engine.runner import Runner
from lowering.program import BlockView, OpView, ProgramView


def run(op_type, attrs=None, inputs=None, key=0, outputs=("Out",), jitted=False):
    """The outputs of one op, drawn with a key of that number."""
    values = {name: np.asarray(v) for name, v in (inputs or {}).items()}
    op = OpView(
        op_type, {n: [n] for n in values}, {o: [o] for o in outputs}, lowering.check_attrs(op_type, attrs or {})
    )
    program = ProgramView((BlockView(0, -1, (op,), {}),))
    with jax.enable_x64(True):

        def body(key):
            return Runner(program, key=key).run_op(op, dict(values))

        return {n: np.asarray(v) for n, v in (jax.jit(body) if jitted else body)(jax.random.key(key)).items()}


@pytest.mark.parametrize("dtype", [5, 6])
def test_uniform_fills_its_range(dtype):
    out = run("uniform_random", {"shape": [200, 50], "min": -2.0, "max": 3.0, "dtype": dtype})["Out"]
    assert out.dtype == (np.float32 if dtype == 5 else np.float64)
    assert out.min() >= -2 and out.max() < 3
    assert abs(out.mean() - 0.5) < 0.1 and abs(out.std() - 5 / np.sqrt(12)) < 0.1


def test_uniform_sets_a_diagonal():
    out = run("uniform_random", {"shape": [4, 4], "diag_num": 4, "diag_step": 4, "diag_val": 9.0})["Out"]
    np.testing.assert_array_equal(np.diag(out), np.full(4, 9.0))
    assert (np.abs(out - np.diag(np.diag(out))) < 1).all()


def test_uniform_like_a_batch_sets_a_diagonal():
    attrs = {"shape": [-1, 4], "diag_num": 3, "diag_step": 4, "diag_val": 9.0}
    inputs = {"Input": np.zeros((3, 2), "float32")}
    out = run("uniform_random_batch_size_like", attrs, inputs)["Out"]
    np.testing.assert_array_equal(np.diag(out), np.full(3, 9.0))
    assert out.shape == (3, 4) and (np.abs(out) < 1).sum() == 9


@pytest.mark.parametrize("op_type", ["uniform_random", "uniform_random_batch_size_like"])
def test_a_diagonal_that_does_not_fit_is_refused(op_type):
    inputs = {"Input": np.zeros((3, 2), "float32")} if op_type.endswith("like") else {}
    attrs = {"shape": [3, 4], "diag_num": 3, "diag_step": 8, "diag_val": 9.0}
    with pytest.raises(lowering.OpError, match=r"3 elements 8 columns apart do not fit into \[3, 4\]"):
        run(op_type, attrs, inputs)


def test_gaussian_moments():
    out = run("gaussian_random", {"shape": [20000], "mean": 1.0, "std": 2.0})["Out"]
    assert abs(out.mean() - 1) < 0.1 and abs(out.std() - 2) < 0.1


def test_truncated_gaussian_stays_within_two_deviations():
    out = run("truncated_gaussian_random", {"shape": [20000], "mean": 1.0, "std": 0.5})["Out"]
    assert out.min() >= 0 and out.max() <= 2
    assert abs(out.std() - 0.5 * 0.8796) < 0.02


def test_randint_and_randperm():
    out = run("randint", {"shape": [500], "low": -3, "high": 4})["Out"]
    assert out.dtype == np.int64 and set(out) == set(range(-3, 4))
    np.testing.assert_array_equal(np.sort(run("randperm", {"n": 50})["Out"]), np.arange(50))


def test_sampling_id_follows_the_probabilities():
    rows = np.tile([0.1, 0.0, 0.6, 0.3], (20000, 1))
    out = run("sampling_id", inputs={"X": rows})["Out"]
    np.testing.assert_allclose(np.bincount(out, minlength=4) / len(out), [0.1, 0, 0.6, 0.3], atol=0.02)


@pytest.mark.parametrize("shape", [[7], [5000], [300000]])
def test_a_trace_draws_the_same_values(shape):
    attrs = {"shape": shape}
    np.testing.assert_array_equal(
        run("gaussian_random", attrs)["Out"], run("gaussian_random", attrs, jitted=True)["Out"]
    )


def test_a_seed_repeats_and_keys_differ():
    seeded = {"shape": [5], "seed": 7}
    np.testing.assert_array_equal(run("uniform_random", seeded)["Out"], run("uniform_random", seeded, key=1)["Out"])
    free = {"shape": [5]}
    assert (run("uniform_random", free)["Out"] != run("uniform_random", free, key=1)["Out"]).all()


def test_many_shapes_share_few_kernels():
    """A startup program must not compile a kernel for each parameter."""
    before = random_bits._uniform._cache_size()
    for n in range(1, 40):
        run("uniform_random", {"shape": [n, 3 * n]})
    assert random_bits._uniform._cache_size() - before <= len(random_bits.CHUNKS)


SEEDS = (0, 7, -3, 2**40 + 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_host_key_folds_and_draws_the_bits_of_jax(seed):
    with jax.enable_x64(True):
        key = jax.random.key(seed)
        host = host_bits.key_of(seed)
        np.testing.assert_array_equal(host, jax.random.key_data(key))
        for data in (0, 1, 2**31 - 1):
            folded = jax.random.key_data(jax.random.fold_in(key, data))
            np.testing.assert_array_equal(host_bits.fold_in(host, data), folded)
        bits = np.asarray(jax.random.bits(key, (3000,), np.uint32))
        np.testing.assert_array_equal(host_bits.bits(host, 0, 3000), bits)
        np.testing.assert_array_equal(host_bits.bits(host, 1000, 2000), bits[1000:])


@pytest.mark.parametrize("size", [1, 5000, 300000])
@pytest.mark.parametrize("name", ["uniform", "normal", "truncated_normal"])
def test_a_host_key_draws_what_the_kernels_draw(name, size):
    """XLA fuses multiplication and addition: the last bit may differ."""
    draw = getattr(random_bits, name)
    on_host = np.asarray(draw(host_bits.key_of(3), (size,), np.float32, -0.25, 0.75))
    assert on_host.shape == (size,) and on_host.dtype == np.float32
    np.testing.assert_allclose(on_host, draw(jax.random.key(3), (size,), np.float32, -0.25, 0.75), rtol=1e-6, atol=1e-6)


def test_a_host_key_serves_what_the_host_does_not_draw():
    key, host = jax.random.key(4), host_bits.key_of(4)
    with jax.enable_x64(True):
        for draw in (
            lambda k: random_bits.normal(k, (9,), np.float64),
            lambda k: random_bits.integers(k, (9,), np.int64, 0, 100),
        ):
            np.testing.assert_array_equal(draw(host), draw(key))


@pytest.mark.parametrize("name", host_bits.DISTRIBUTIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_kernels_draw_what_numpy_draws(seed, name):
    """To the last bit, in the tails too: one value in a hundred is there."""
    key, scale, offset = host_bits.key_of(seed), np.float32(0.3), np.float32(0.7)
    for begin, count in ((0, 10), (host_kernels.COUNT, host_kernels.COUNT)):
        ours, theirs = np.empty((2, count), np.float32)
        host_kernels.draw(name, key, begin, ours, scale, offset)
        host_bits.draw(name, key, begin, theirs, scale, offset)
        np.testing.assert_array_equal(ours, theirs)


def test_a_process_that_drew_much_draws_the_same(monkeypatch):
    def draw():
        shape = host_kernels.COUNT + 7, 3
        return np.asarray(random_bits.truncated_normal(host_bits.key_of(8), shape, np.float32))

    pieces = []
    monkeypatch.setattr(host_kernels, "draw", lambda *a, draw=host_kernels.draw: pieces.append(a) or draw(*a))
    monkeypatch.setattr(host_kernels.cheapest, "_drawn", 0)
    few = draw()
    assert not pieces
    monkeypatch.setattr(host_kernels.cheapest, "_drawn", host_kernels.WORTH)
    np.testing.assert_array_equal(draw(), few)
    assert len(pieces) == 4
    random_bits.uniform(host_bits.key_of(8), (5, 5), np.float32)
    assert len(pieces) == 4, "a few values are not worth a call"


def test_kernels_are_compiled_once_whatever_thread_draws(monkeypatch):
    """The thread that runs a program has 64-bit types and a default device of its own; those that help have not."""
    traced = []
    for name in ("_uniform", "_deviates"):
        kernel = getattr(host_kernels, name)
        monkeypatch.setattr(host_kernels, name, lambda *a, kernel=kernel: traced.append(kernel) or kernel(*a))
    monkeypatch.setattr(host_kernels.cheapest, "_drawn", host_kernels.WORTH)
    host_kernels.kernels.cache_clear()
    try:
        for count in (1 << 16, host_kernels.COUNT + 7):  # drawn by this thread, and by two others
            random_bits.normal(host_bits.key_of(9), (count,), np.float32)
            with jax.enable_x64(True):
                random_bits.normal(host_bits.key_of(9), (count,), np.float32)
    finally:
        host_kernels.kernels.cache_clear()
    assert len(traced) == 2


def test_a_startup_program_that_draws_much_has_the_kernels_at_once(monkeypatch):
    monkeypatch.setattr(host_kernels.cheapest, "_drawn", 0)
    monkeypatch.setattr(host_kernels, "WORTH", 3 << 16)
    pieces = []
    monkeypatch.setattr(host_kernels, "draw", lambda *a, draw=host_kernels.draw: pieces.append(a) or draw(*a))
    for rows, expected in ((2, 0), (4, 2)):
        startup = fluid.Program()
        with fluid.program_guard(fluid.Program(), startup):
            fluid.layers.create_parameter([rows, 1 << 15], "float32")
            fluid.layers.create_parameter([1 << 15, rows], "float32")
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=fluid.Scope())
        assert len(pieces) == expected


def test_large_zeros_are_not_copied_to_the_device():
    zeros = host_arrays.zeros((3, 1 << 17), np.float32)
    assert zeros.shape == (3, 1 << 17) and zeros.dtype == np.float32 and not zeros.any()
    assert jax.device_put(zeros).unsafe_buffer_pointer() == zeros.ctypes.data


def test_erf_inv_inverts_erf():
    x = np.concatenate([np.linspace(-0.99999, 0.99999, 1001), [0.9999999, -0.9999999]]).astype(np.float32)
    np.testing.assert_allclose(host_bits.erf_inv(x), jax.scipy.special.erfinv(x), rtol=1e-6, atol=1e-7)


def test_shuffle_batch_permutes_rows_and_its_gradient_puts_them_back(rng):
    x, seed = rng.standard_normal((6, 2)), np.array([3])
    outs = run("shuffle_batch", inputs={"X": x, "Seed": seed}, outputs=("Out", "ShuffleIdx", "SeedOut"))
    np.testing.assert_array_equal(outs["Out"], x[outs["ShuffleIdx"]])
    assert outs["SeedOut"] != seed
    back = run(
        "shuffle_batch_grad", inputs={"ShuffleIdx": outs["ShuffleIdx"], "Out@GRAD": outs["Out"]}, outputs=["X@GRAD"]
    )
    np.testing.assert_array_equal(back["X@GRAD"], x)


PROVEN = {"shuffle_batch"}


def test_gradient_of_shuffle_batch(rng):
    """Against ``jax.vjp`` with the same key, and differences of a fixed linear form."""
    x, weights, direction = (rng.standard_normal((6, 2)) for _ in range(3))
    seed = np.array([3])

    def shuffled(x):
        op = OpView(
            "shuffle_batch", {"X": ["x"], "Seed": ["s"]}, {n: [n] for n in ("Out", "ShuffleIdx", "SeedOut")}, {}
        )
        program = ProgramView((BlockView(0, -1, (op,), {}),))
        return Runner(program, key=jax.random.key(0)).run_op(op, {"x": x, "s": seed})

    with jax.enable_x64(True):
        index = shuffled(x)["ShuffleIdx"]
        inputs = {"ShuffleIdx": index, "Out@GRAD": weights}
        ours = run("shuffle_batch_grad", inputs=inputs, outputs=["X@GRAD"])["X@GRAD"]
        theirs = jax.vjp(lambda v: shuffled(v)["Out"], x)[1](weights)[0]
        ends = [float(np.sum(np.asarray(shuffled(x + s * direction)["Out"]) * weights)) for s in (1e-4, -1e-4)]
    np.testing.assert_array_equal(ours, theirs)
    assert float(np.sum(ours * direction)) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-6)


def test_random_crop_takes_windows(rng):
    x = np.arange(2 * 5 * 6).reshape(2, 5, 6).astype(np.float64)
    out = run("random_crop", {"shape": [2, 3]}, {"X": x, "Seed": np.array([1])}, outputs=("Out", "SeedOut"))["Out"]
    assert out.shape == (2, 2, 3)
    for sample, window in zip(x, out, strict=True):
        i, j = np.argwhere(sample == window[0, 0])[0]
        np.testing.assert_array_equal(window, sample[i : i + 2, j : j + 3])


def test_random_crop_starts_from_its_attribute():
    """The seed tensor holds nothing before the first run of a program."""
    x = np.zeros((1, 4, 4))
    out = run("random_crop", {"shape": [2, 2], "startup_seed": 3}, {"X": x}, outputs=("Out", "SeedOut"))
    assert out["SeedOut"].shape == (1,)


def test_tdm_sampler_never_draws_the_positive_node():
    travel, layer = np.array([[1, 3], [2, 5]]), np.arange(1, 7).reshape(-1, 1)
    attrs = {"neg_samples_num_list": [1, 3], "layer_offset_lod": [0, 2, 6]}
    outs = run(
        "tdm_sampler", attrs, {"X": [[0], [1]], "Travel": travel, "Layer": layer}, outputs=("Out", "Labels", "Mask")
    )
    np.testing.assert_array_equal(outs["Labels"], [[1, 0, 1, 0, 0, 0]] * 2)
    np.testing.assert_array_equal(outs["Out"][:, :2], [[1, 2], [2, 1]])
    assert set(outs["Out"][0, 2:]) == {3, 4, 5, 6} and outs["Out"][1, 2] == 5
