"""pyramid_hash against recordings of Paddle 1.8.5, an independent XXH32 in Python integers, and ``jax.grad``."""

import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowering
from lowering.engine.call import call
from lowering.engine.runner import Runner
from lowering.errors import OpError
from lowering.program import OpView
from lowering.values import LoDArray
from tests.lod.property import pad_rows, valid_rows

PROVEN = {"pyramid_hash"}
IDS, OFFSETS = [3, 1, 4, 1, 5, 9, 2, 6], [0, 3, 4, 4, 8]
TABLE = (np.arange(24) * 0.5 - 3).astype(np.float32).reshape(-1, 1)
ATTRS = {
    "num_emb": 8, "space_len": 20, "rand_len": 4, "pyramid_layer": 3, "is_training": 1, "drop_out_percent": 0.4,
    "seed": 2, "lr": 0.25,
}  # fmt: skip
WHITE = [17070416, 0, 72, 0, 2, 0, 7, 0, 4292870143, 4294967038, 239]
BLACK = [17070416, 0, 72, 0, 1, 0, 7, 0, 75763721, 2735703236, 224]

# Paddle's results: attributes, lists, the LoD of Out, the flags in DropPos, where in the table both blocks of each row
# begin (None: a row of zeros), and the table after a step on gradients 0, 1/8, 2/8 ...
EVERY = ([0, 3, 4, 5, 10], [1] * 8 + [0, 0])
FEW = ([0, 2, 3, 4, 7], [1, 0, 1, 1, 0, 1, 0, 1, 0, 0])
LISTED = ([0, 3, 4, 5, 9], [1, 1, 1, 1, 1, 1, 0, 1, 0, 0])
FEW_ROWS = [(15, 16), (16, 8), None, None, (8, 2), (12, 13), (3, 15)]
FEW_STEP = [
    -3, -2.5, -3.125, -4.15625, -3.71875, -3.28125, -1.59375, 0.5, -0.375, 0.0625, 0.5, 0.9375, 1.75, 0.84375, 1.28125,
    0.09375, 1.46875, 3.3125, 3.6875, 5.9375, 7, 7.5, 8, 8.5,
]  # fmt: skip
ALL_STEP = [
    -3, -2.5, -3.375, -5.15625, -5.09375, -4.6875, -4.28125, -1.5, -2.4375, -3.65625, -1.65625, -1.25, -0.46875,
    -0.15625, 0.28125, -1.90625, -2.4375, -0.15625, 0.15625, 1.46875, 4.96875, 5.4375, 5.90625, 8.5,
]  # fmt: skip
LISTED_STEP = [
    -3, -2.5, -3.375, -4.90625, -4.84375, -4.4375, -4.03125, -1.5, -2.4375, -3.65625, -1.65625, -1.25, -0.46875,
    -0.15625, 0.28125, -1.65625, -0.0625, 2.25, 2.59375, 5.6875, 7, 7.5, 8, 8.5,
]  # fmt: skip
LISTED_ROWS = [(15, 16), (15, 4), (16, 8), None, None, (8, 2), (6, 9), (12, 13), (3, 15)]
ALL_ROWS = [*LISTED_ROWS[:8], (19, 16), (3, 15)]
RECORDED = {
    "training": ({}, None, None, FEW, FEW_ROWS, FEW_STEP),
    "inference": ({"is_training": 0}, None, None, EVERY, ALL_ROWS, ALL_STEP),
    "white": ({"drop_out_percent": 0.0, "white_list_len": 11}, WHITE, None, LISTED, LISTED_ROWS, LISTED_STEP),
    "black": ({"black_list_len": 11}, None, BLACK, FEW, FEW_ROWS, FEW_STEP),
    "unused": ({"white_list_len": 11, "use_filter": False}, WHITE, None, FEW, FEW_ROWS, FEW_STEP),
}


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


def blob(words):
    return None if words is None else np.array(words, np.uint32).view(np.float32).reshape(-1, 1)


def ragged(ids, offsets, capacity=None):
    rows, off = np.array(ids, np.int32).reshape(-1, 1), np.array(offsets, np.int32)
    if capacity is None:
        return LoDArray(rows, (off,))
    off = np.concatenate([off, off[-1:]])  # one sequence of padding
    data = jnp.asarray(pad_rows(rows, capacity, "last"))
    return LoDArray(data, (jnp.asarray(off),), jnp.int32(len(rows)), jnp.int32(len(off) - 2))


def run(op_type, ins, attrs):
    """The op in one jit; exact rows stay known in it."""
    ins = {"WhiteList": None, "BlackList": None} | ins
    known = {k: v for k, v in ins.items() if isinstance(v, LoDArray) and not v.padded}
    traced = {k: v for k, v in ins.items() if k not in known}
    return jax.jit(lambda given: call(lowering.get_op(op_type), {**given, **known}, attrs, {}))(traced)


def levels(value, count):
    return np.asarray(value.lod[0])[: count + 1].tolist()


def embedding(starts):
    return np.zeros(8, np.float32) if starts is None else np.concatenate([TABLE[at : at + 4, 0] for at in starts])


def gradient_of(out, numbers):
    """Out@GRAD with these numbers in its valid rows, zero after them."""
    data = np.zeros(out.shape, out.dtype)
    data[: len(numbers)] = numbers
    return out.with_data(data)


@pytest.mark.parametrize("capacity", [None, 12])
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_results(name, capacity):
    changed, white, black, (lod, flags), rows, step = RECORDED[name]
    attrs = ATTRS | changed
    ins = {"X": ragged(IDS, OFFSETS, capacity), "W": TABLE, "WhiteList": blob(white), "BlackList": blob(black)}
    outs = run("pyramid_hash", ins, attrs)
    out = valid_rows(outs["Out"])
    scale = np.float32(1 if attrs["is_training"] else attrs["drop_out_percent"])
    np.testing.assert_array_equal(out, np.stack([embedding(starts) for starts in rows]) * scale)
    assert levels(outs["Out"], 4) == lod
    assert valid_rows(outs["DropPos"])[:10, 0].tolist() == flags
    assert valid_rows(outs["DropPos"]).shape == (24, 1)
    np.testing.assert_array_equal(valid_rows(outs["X_Temp_Out"]), np.array(IDS, np.float32)[:, None])
    numbers = (np.arange(out.size) / 8).reshape(out.shape)
    after = run("pyramid_hash_grad", {**ins, **outs, "Out@GRAD": gradient_of(outs["Out"], numbers)}, attrs)
    assert np.asarray(after["W"]).ravel().tolist() == step
    assert after["X@GRAD"] is None


# --- an independent XXH32 -----------------------------------------------------------------------------------------

PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def rotated(x, bits):
    x &= 0xFFFFFFFF
    return (x << bits | x >> (32 - bits)) & 0xFFFFFFFF


def reference_hash(data, seed):
    """XXH32 of bytes whose number is a multiple of 4, one word at a time."""
    p1, p2, p3, p4, p5 = PRIMES
    words = list(struct.unpack(f"<{len(data) // 4}I", data))
    state = seed + p5
    if len(words) >= 4:
        lanes = [seed + p1 + p2, seed + p2, seed, seed - p1]
        while len(words) >= 4:
            lanes = [rotated(lane + words.pop(0) * p2, 13) * p1 for lane in lanes]
        state = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    state += len(data)
    for word in words:
        state = rotated(state + word * p3, 17) * p4
    state &= 0xFFFFFFFF
    state = (state ^ state >> 15) * p2 & 0xFFFFFFFF
    state = (state ^ state >> 13) * p3 & 0xFFFFFFFF
    return state ^ state >> 16


def test_reference_hash_of_known_words():
    assert reference_hash(b"", 0) == 0x02CC5D05
    assert reference_hash(b"abcd", 0) == 0xA3643705


@pytest.mark.parametrize(("rand_len", "blocks", "layers"), [(3, 2, 2), (1, 5, 9), (16, 1, 5)])
def test_every_n_gram_by_its_hash(rand_len, blocks, layers, rng):
    offsets = [0, 0, 10, 11, 16]
    ids = np.concatenate([rng.integers(-9, 9, 8), rng.integers(-(2**31), 2**31, 8)]).astype(np.int32)
    table = rng.standard_normal((101 + rand_len, 1)).astype(np.float32)
    attrs = {"num_emb": rand_len * blocks, "rand_len": rand_len, "space_len": 101, "pyramid_layer": layers}
    outs = run("pyramid_hash", {"X": ragged(ids, offsets), "W": table}, attrs | {"is_training": 1})
    expected = []
    for begin, end in zip(offsets, offsets[1:], strict=False):
        grams = [ids[i : i + n] for n in range(2, layers + 1) for i in range(begin, end - n + 1)]
        for gram in grams:
            data = gram.astype("<f4").tobytes()
            starts = [reference_hash(data, j * rand_len) % 101 for j in range(blocks)]
            expected.append(np.concatenate([table[at : at + rand_len, 0] for at in starts]))
        expected += [] if grams else [np.zeros(rand_len * blocks)]
    np.testing.assert_array_equal(valid_rows(outs["Out"]), np.stack(expected).astype(np.float32))


def test_the_step_is_that_of_gradient_descent(rng):
    """The change of W is -lr times the derivative of the training forward, which is linear in W."""
    x, table = ragged(IDS, OFFSETS), rng.standard_normal((24, 1))
    outs = run("pyramid_hash", {"X": x, "W": table}, ATTRS)
    weights = rng.standard_normal(valid_rows(outs["Out"]).shape)
    d_out = gradient_of(outs["Out"], weights)

    def loss(w):
        given = {"X": x, "W": w, "WhiteList": None, "BlackList": None}
        return jnp.sum(call(lowering.get_op("pyramid_hash"), given, ATTRS, {})["Out"].data * d_out.data)

    after = run("pyramid_hash_grad", {"X": x, "W": table, **outs, "Out@GRAD": d_out}, ATTRS)
    expected = np.asarray(table - ATTRS["lr"] * jax.jit(jax.grad(loss))(table))
    np.testing.assert_allclose(after["W"], expected, rtol=1e-12, atol=1e-12)
    way = rng.standard_normal(table.shape)
    slope = float(jax.jit(loss)(table + way) - jax.jit(loss)(table - way)) / 2
    assert float(np.sum((table - np.asarray(after["W"])) * way)) == pytest.approx(ATTRS["lr"] * slope, rel=1e-9)


def test_int8_tables_are_not_scaled(rng):
    table = rng.integers(-128, 128, (24, 1)).astype(np.int8)
    outs = run("pyramid_hash", {"X": ragged(IDS, OFFSETS), "W": table}, ATTRS | {"is_training": 0})
    expected = [np.zeros(8) if at is None else np.concatenate([table[i : i + 4, 0] for i in at]) for at in ALL_ROWS]
    np.testing.assert_array_equal(valid_rows(outs["Out"]), np.stack(expected))
    assert outs["Out"].dtype == np.int8


def test_no_ids_at_all():
    outs = run("pyramid_hash", {"X": ragged([], [0, 0, 0]), "W": TABLE}, ATTRS)
    np.testing.assert_array_equal(valid_rows(outs["Out"]), np.zeros((2, 8)))
    assert levels(outs["Out"], 2) == [0, 1, 2]


def test_what_is_no_filter_gives_nan():
    ins = {"X": ragged(IDS, OFFSETS), "W": TABLE, "WhiteList": blob([7, *WHITE[1:]])}
    outs = run("pyramid_hash", ins, ATTRS | {"white_list_len": 11})
    assert np.isnan(valid_rows(outs["Out"])).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_emb": 6}, "multiple of rand_len"),
        ({"space_len": 30}, r"= \[34, 1\]"),
        ({"pyramid_layer": 1}, "pyramid_layer >= 2"),
    ],
)
def test_attributes_that_do_not_fit(changed, message):
    with pytest.raises(ValueError, match=message):
        run("pyramid_hash", {"X": ragged(IDS, OFFSETS), "W": TABLE}, ATTRS | changed)


def test_outer_lod_levels_are_refused():
    x = ragged(IDS, OFFSETS)
    with pytest.raises(ValueError, match="one LoD level"):
        run("pyramid_hash", {"X": LoDArray(x.data, (np.array([0, 4], np.int32), *x.lod)), "W": TABLE}, ATTRS)


def test_a_step_inside_a_loop_is_refused():
    inputs = {"X": ["x"], "W": ["w"], "DropPos": ["d"], "X_Temp_Out": ["t"], "Out@GRAD": ["g"]}
    op = OpView("pyramid_hash_grad", inputs, {"X@GRAD": ["x@GRAD"]}, ATTRS, 0, 1)
    with pytest.raises(OpError, match="outermost block"):
        Runner(None).run_op(op, dict.fromkeys("xwdtg", TABLE))
