"""Random changes to the bytes of a sound file."""

import os
import random
import time
from collections.abc import Callable, Iterator

SECONDS = float(os.environ.get("FUZZ_SECONDS", "1"))
_WORDS = (b"\x00" * 4, b"\xff" * 4, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"9" * 12, b"-1")


def mutated(data: bytes, draw: random.Random) -> bytes:
    """The bytes with up to four changes: one other, some cut, repeated, or replaced by a telling word."""
    content = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(content) + 1)
        kind = draw.randrange(5)
        if kind == 0 and at < len(content):
            content[at] = draw.randrange(256)
        elif kind == 1:
            del content[at : at + draw.choice((1, 2, 8, 100))]
        elif kind == 2:
            content[at:at] = content[at : at + 64]
        elif kind == 3:
            word = draw.choice(_WORDS)
            content[at : at + len(word)] = word
        else:
            del content[at:]
    return bytes(content)


def cases(data: bytes, seed: int, *, wrap: Callable[[bytes], bytes] = bytes) -> Iterator[bytes]:
    """Mutated files for ``SECONDS``; ``wrap`` compresses a changed content, for changes that reach what is inside."""
    draw = random.Random(seed)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield mutated(wrap(data), draw)
        yield wrap(mutated(data, draw))
