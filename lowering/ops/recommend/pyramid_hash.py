"""pyramid_hash: embeddings of all n-grams of each sequence, hashed into one flat table."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.ops.recommend.word_hashes import murmur3_128, xxh32
from lowering.ragged import infer as sequence_infer
from lowering.ragged.rows import bounds, lengths, new_rows, offsets, offsets_of, row_numbers, segments, shifted, take
from lowering.registry import MASKED, op
from lowering.values import Array, LoDArray, fill_padding, is_concrete

_BLOOM_MAGIC = np.uint64(17070416)
_HEADER_WORDS = 8


class Grams(NamedTuple):
    """The n-grams of a batch: by sequence, in it by length, then by first row; n from 2 to ``lengths + 1``.

    ``source`` [C] int32 is (n - 2) * rows + first row, ``seq`` [C] the sequence; entries from the last of
    ``offsets`` (int32 [sequences + 1]) on are none.
    """

    source: Array
    seq: Array
    offsets: Array

    @property
    def valid(self) -> Array:
        """bool [C]: which entries are n-grams."""
        return row_numbers(self.source.shape[0]) < self.offsets[-1]


def _fewer(size: Array, spans: Array) -> Array:
    """How many n-grams with n <= ``spans`` a sequence of ``size`` rows has (n >= 2)."""
    used = np.minimum if is_concrete(size) else jnp.minimum
    last = used(size, spans - 1)
    return (last * size - last * (last + 1) // 2).astype(np.int32)


def _grams(x: LoDArray, longest: int) -> Grams:
    if len(x.lod) > 1:
        raise ValueError(f"pyramid_hash reads X with one LoD level, received {len(x.lod)}; remove the outer ones")
    off, rows = offsets(x), row_numbers(x.capacity)
    _, start, end = bounds(off, x.capacity)
    grams = offsets_of(_fewer(lengths(off), np.int32(longest)))
    total = int(grams[-1]) if is_concrete(grams) else (longest - 1) * x.capacity
    spans = np.arange(1, longest, dtype=np.int32)[:, None]
    seq = segments(off, rows)
    place = take(grams[:-1], seq) + _fewer(end - start, spans) + rows - start
    place = jnp.where(rows + spans < end, place, np.int32(total)).reshape(-1)
    source = jnp.zeros(total, jnp.int32).at[place].set(row_numbers(place.shape[0]), mode="drop")
    return Grams(source, segments(grams, row_numbers(total)), grams)


def _words(x: LoDArray, longest: int) -> list[list[Array]]:
    """For n = 2 .. ``longest`` the words that are hashed: the ids as float32, bit by bit.

    As in Fluid's kernel the ids of all sequences lie one after another, one for each row, whatever X's second dim is.
    """
    ids = lax.bitcast_convert_type(x.data.reshape(-1)[: x.capacity].astype(jnp.float32), jnp.uint32)
    moved = [shifted(ids, j) for j in range(longest)]
    return [moved[: n + 1] for n in range(1, longest)]


# --- which n-grams are kept ---------------------------------------------------------------------------------------


def _listed(blob: Array, words: list[list[Array]]) -> Array:
    """bool [(longest - 1) * rows]: whether a Bloom filter holds each n-gram.

    The filter is 64-bit words magic, m, k and a count, then m bits, the highest of a byte first; an n-gram is in it
    when bits h1 % m and h2 % m are set for both halves of its MurmurHash3 with each seed 0 .. k - 1.
    """
    raw = lax.bitcast_convert_type(blob.reshape(-1).astype(jnp.float32), jnp.uint32)
    size, rounds = (raw[i].astype(jnp.uint64) | (raw[i + 1].astype(jnp.uint64) << np.uint64(32)) for i in (2, 4))
    bits = raw[_HEADER_WORDS:]

    def has(place: Array) -> Array:
        word = take(bits, (place // np.uint64(32)).astype(jnp.int32))
        shift = place % np.uint64(32)
        return (word >> (shift ^ np.uint64(7)).astype(jnp.uint32)) & np.uint32(1) != 0

    def both(seed: Array, found: Array) -> Array:
        halves = [murmur3_128(w, seed) for w in words]
        set_ = [has(h1 % size) & has(h2 % size) for h1, h2 in halves]
        return found & jnp.concatenate(set_)

    start = jnp.ones(sum(w[0].shape[0] for w in words), bool)
    return lax.fori_loop(np.uint64(0), rounds, both, start)


def _is_filter(blob: Array) -> Array:
    head = lax.bitcast_convert_type(blob.reshape(-1)[:2].astype(jnp.float32), jnp.uint32).astype(jnp.uint64)
    return (head[0] | (head[1] << np.uint64(32))) == _BLOOM_MAGIC


def _survivors(seed: int, percent: float, count: int) -> np.ndarray:
    """bool [count]: which draws of glibc's rand_r from ``seed`` keep an n-gram."""
    factors = np.cumprod(np.full(3 * count, 1103515245, np.uint32), dtype=np.uint32)
    before = np.concatenate([np.ones(1, np.uint32), factors[:-1]])[: 3 * count]
    states = factors * np.uint32(seed) + np.uint32(12345) * np.cumsum(before, dtype=np.uint32)
    high, middle, low = (states.reshape(count, 3).T >> 16).astype(np.int64)
    drawn = ((high % 2048 << 10 ^ middle % 1024) << 10) ^ low % 1024
    return drawn.astype(np.float32) / np.float32(2147483647) >= np.float32(percent)


class Kept(NamedTuple):
    """What is left of the n-grams: ``flags`` [C], ``rank`` [C] among those kept, ``offsets`` that count them alone."""

    flags: Array
    rank: Array
    offsets: Array


def _counted(grams: Grams, flags: Array) -> Kept:
    count = jnp.cumsum(flags, dtype=jnp.int32)
    return Kept(flags, count - 1, take(jnp.concatenate([jnp.zeros(1, jnp.int32), count]), grams.offsets))


def _keep(grams: Grams, listed: Array | None, seed: int, percent: float) -> Kept:
    """What the lists and dropout leave; a draw is made for n-grams that the lists leave, and for no others."""
    if listed is None and percent <= 0:
        return Kept(grams.valid, row_numbers(grams.source.shape[0]), grams.offsets)
    kept = _counted(grams, grams.valid if listed is None else grams.valid & take(listed, grams.source))
    if percent <= 0 or not kept.flags.shape[0]:
        return kept
    drawn = jnp.asarray(_survivors(seed, percent, kept.flags.shape[0]))
    return _counted(grams, kept.flags & take(drawn, kept.rank))


# --- where they come from and go ----------------------------------------------------------------------------------


def _windows(words: list[list[Array]], num_emb: int, rand_len: int, space_len: int) -> Array:
    """int32 [(longest - 1) * rows, blocks]: where each block of an n-gram's embedding begins in the table."""
    seeds = np.arange(0, num_emb, rand_len, dtype=np.uint32)[None, :]
    starts = [xxh32([w[:, None] for w in gram], seeds) % np.uint32(space_len) for gram in words]
    return jnp.concatenate(starts).astype(jnp.int32)


def _rows(x: LoDArray, grams: Grams, kept: Kept) -> tuple[Array, Array]:
    """(the row of Out of each n-gram, one past the last where it is not kept; the offsets of Out).

    A sequence without n-grams has one row.
    """
    size = lengths(kept.offsets)
    size = size + (size == 0)
    if x.nseq is not None:
        size = jnp.where(row_numbers(size.shape[0]) < x.nseq, size, 0)
    off = offsets_of(size)
    row = take(off[:-1], grams.seq) - take(kept.offsets[:-1], grams.seq) + kept.rank
    return jnp.where(kept.flags, row, _room(grams, off)), off


def _room(grams: Grams, off: Array) -> int:
    """The most rows that Out may have; exactly those that it has where that is known."""
    return int(off[-1]) if is_concrete(off) else grams.source.shape[0] + off.shape[0] - 1


def _check(rows: int, num_emb: int, rand_len: int, space_len: int, longest: int) -> None:
    if longest < 2:
        raise ValueError(f"pyramid_hash needs pyramid_layer >= 2, received {longest}; 2 gives pairs of ids")
    if rand_len < 1 or num_emb % rand_len:
        raise ValueError(
            f"pyramid_hash needs num_emb ({num_emb}) to be a multiple of rand_len ({rand_len}); change one"
        )
    if rows != space_len + rand_len:
        raise ValueError(
            f"pyramid_hash needs W of shape [space_len + rand_len, 1] = [{space_len + rand_len}, 1], received {rows}"
            " rows; change the table or the attributes"
        )


@sequence_infer.inferred
def _infer(of: sequence_infer.Inputs) -> sequence_infer.Facts:
    """Shapes as Fluid declares them: of DropPos, whose rows nobody reads, none."""
    x, w = of("X"), of("W")
    _check(w.shape[0], *(int(of.attrs[name]) for name in ("num_emb", "rand_len", "space_len", "pyramid_layer")))
    return {
        "Out": ((-1, int(of.attrs["num_emb"])), x.lod_level, w.dtype),
        "X_Temp_Out": (x.shape, 0, None),
    }


def _embeddings(w: Array, starts: Array, rand_len: int) -> Array:
    """[n, num_emb]: the blocks of ``rand_len`` numbers that begin at ``starts`` [n, blocks]."""
    return take(w.reshape(-1), starts[:, :, None] + row_numbers(rand_len)).reshape(starts.shape[0], -1)


def _side_outputs(x: LoDArray, kept: Kept, longest: int) -> tuple[LoDArray, LoDArray]:
    """DropPos and X_Temp_Out: flags of the n-grams with room for longest of each id, and X as float32."""
    width = int(np.prod(x.shape[1:])) * longest
    flags = kept.flags.astype(jnp.int32)
    flags = jnp.concatenate([flags, jnp.zeros(width * x.capacity - flags.shape[0], jnp.int32)])[:, None]
    count = None if x.nrows is None else x.nrows * width
    drop_pos = LoDArray(fill_padding(flags, count, backward=False), (kept.offsets,), count, x.nseq)
    return drop_pos, LoDArray(x.data.astype(jnp.float32), (), x.nrows)


def _filters(given: list[Array | None], words: list[list[Array]]) -> tuple[Array | None, Array]:
    """(which n-grams the white and the black list leave, None for all; whether the lists are Bloom filters)."""
    left, sound = None, np.bool_(True)
    for blob, wanted in zip(given, (True, False), strict=True):
        if blob is not None:
            found = _listed(blob, words) == wanted
            left, sound = found if left is None else left & found, sound & _is_filter(blob)
    return left, sound


@op(out="Out DropPos X_Temp_Out~", diff="x", rows=MASKED, lod=None, infer=_infer, absent="white_list black_list")
def pyramid_hash(
    x: LoDArray,
    w,
    white_list,
    black_list,
    *,
    num_emb: int = 0,
    space_len: int = 0,
    pyramid_layer: int = 2,
    rand_len: int = 0,
    drop_out_percent: float = 0.0,
    is_training: int = 0,
    use_filter: bool = True,
    white_list_len: int = 0,
    black_list_len: int = 0,
    seed: int = 0,
    lr: float = 0.0,
    distribute_update_vars: str = "",
):
    """Out: for each n-gram of each sequence of X, n = 2 .. pyramid_layer, the blocks W[h_j : h_j + rand_len].

    h_j = XXH32(ids as float32, seed j * rand_len) % space_len, j < num_emb / rand_len. N-grams that are not in the
    white list, or are in the black one, or are dropped in training, have no row; a sequence without any gets a row of
    zeros. At test time, a float Out is multiplied by drop_out_percent. DropPos flags the n-grams kept; X_Temp_Out is X
    as float32. Dropout restarts from ``seed`` in each run, as in Fluid. If a list is not a Bloom filter, Out is
    NaN; Fluid raises.
    """
    _check(w.shape[0], num_emb, rand_len, space_len, pyramid_layer)
    grams, words = _grams(x, pyramid_layer), _words(x, pyramid_layer)
    lists = [
        blob if use_filter and size else None
        for blob, size in ((white_list, white_list_len), (black_list, black_list_len))
    ]
    listed, sound = _filters(lists, words)
    kept = _keep(grams, listed, seed, drop_out_percent if is_training else 0.0)
    rows, off = _rows(x, grams, kept)
    source = jnp.full(_room(grams, off), -1, jnp.int32).at[rows].set(grams.source, mode="drop")
    starts = take(_windows(words, num_emb, rand_len, space_len), source)
    out = jnp.where(source[:, None] >= 0, _embeddings(w, starts, rand_len), jnp.zeros((), w.dtype))
    if jnp.issubdtype(w.dtype, jnp.floating):
        out = jnp.where(sound, out if is_training else out * np.float32(drop_out_percent), jnp.nan)
    return new_rows(out, (off,), x), *_side_outputs(x, kept, pyramid_layer)


@pyramid_hash.grad(updates="w")
def _(x: LoDArray, w, drop_pos, x_temp_out, d_out, *, num_emb, space_len, pyramid_layer, rand_len, lr):
    """Ids have no gradient. W itself is updated by gradient descent at the op's own rate ``lr``, as in Fluid."""
    grams, words = _grams(x, pyramid_layer), _words(x, pyramid_layer)
    kept = _counted(grams, grams.valid & (drop_pos.reshape(-1)[: grams.source.shape[0]] != 0))
    rows, _ = _rows(x, grams, kept)
    step = jnp.where(kept.flags[:, None], take(d_out, rows), 0) * -np.float32(lr)
    places = take(_windows(words, num_emb, rand_len, space_len), grams.source)[:, :, None] + row_numbers(rand_len)
    return None, w.reshape(-1).at[places.reshape(-1)].add(step.reshape(-1)).reshape(w.shape)
