"""The wire format of messages: a header, then names, each with or without a value.

    message  "FLJX" | uint64 total bytes | int32 trainer | uint8 flags | uint32 count | items
    item     uint16 length | name | uint8 form | value
    value    uint8 count | zeros | value in Fluid's stream format for its form (see ``fluidjax.files.tensor``)

All little-endian. There are as many zeros before a value as put its numbers at a multiple of 16 bytes, so that they are
used where they arrived. A message travels as frames of at most ``CHUNK`` bytes, one after another. On a stream of short
messages, several may share a frame, with as many zeros in between as put each at a multiple of 16 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fluidjax.distributed.items import ALIGNED, read, written
from fluidjax.distributed.settings import CHUNK, METHODS
from fluidjax.files.errors import FileFormatError
from fluidjax.files.tensor import numbers

_HEAD = struct.Struct("<4sQiBI")
_MAGIC = b"FLJX"

NOW = 1  # a flag: answer at once, whatever the phase
CHANGED = 2  # a flag: of tables, only the rows that have changed since this trainer last asked
LAST = 4  # a flag: the answer is the last thing that this trainer fetches in this round
TOLD = 8  # a flag: nobody waits for an answer, and none is sent
_METHOD = 4  # from this bit on, the flags hold the number of the method, for a stream of several


class WireError(ValueError):
    """The bytes are not a valid message, or exceed the size limit."""


@dataclass
class Message:
    """A message between trainer and server.

    Attributes:
        items: names with their values (in the lowering's representation, on the host, unpadded), or None.
        trainer: index of the sender.
        flags: modifiers of the request, and its method (see ``flags_of``).
    """

    items: Sequence[tuple[str, Any]] = ()
    trainer: int = 0
    flags: int = 0
    size: int = field(default=0, compare=False)

    @property
    def method(self) -> int:
        """The place of the request's method among ``settings.METHODS``, as the sender says."""
        return self.flags >> _METHOD

    def names(self) -> list[str]:
        """The names, in order."""
        return [name for name, _ in self.items]

    def values(self) -> list[Any]:
        """The values, in order."""
        return [value for _, value in self.items]


def flags_of(method: str, flags: int) -> int:
    """The flags of a request of a method."""
    return flags | METHODS.index(method) << _METHOD


def frames(message: Message) -> list[bytes]:
    """Serialise a message; values are copied."""
    parts: list[Any] = [b""]
    size = _HEAD.size
    for name, value in message.items:
        found, size = written(name, value, size)
        parts += found
    parts[0] = _HEAD.pack(_MAGIC, size, message.trainer, message.flags, len(message.items))
    message.size = size
    return [b"".join(parts)] if size <= CHUNK else list(_cut(parts))


def _cut(parts: Iterable[Any]) -> Iterator[bytes]:
    """The bytes of ``parts`` in frames of ``CHUNK`` bytes; the last may be shorter."""
    waiting: list[bytes | memoryview] = []
    room = CHUNK
    for each in parts:
        part = each if isinstance(each, (bytes, memoryview)) else numbers(each)
        while len(part) >= room:
            yield b"".join([*waiting, part[:room]])
            part, waiting, room = part[room:], [], CHUNK
        waiting.append(part)
        room -= len(part)
    if room < CHUNK:
        yield b"".join(waiting)


def joined(received: Iterable[bytes], limit: int) -> Message | None:
    """Reassemble frames to a message; None if there are none. Raises WireError before exceeding ``limit``."""
    parts: list[bytes] = []
    held, size = 0, 0
    for part in received:
        if not parts:
            size = _size(part, limit)
        held += len(part)
        if held > size:
            raise WireError(f"a message of {size} bytes goes on after its end")
        parts.append(part)
    if not parts:
        return None
    if held != size:
        raise WireError(f"a message of {size} bytes ends after {held}")
    return _read(b"".join(parts) if len(parts) > 1 else parts[0], 0, size)


def fit(messages: Sequence[bytes]) -> bool:
    """Whether messages of a frame each may share one."""
    return sum(len(message) + -len(message) % ALIGNED for message in messages) <= CHUNK


def together(messages: Sequence[bytes]) -> bytes:
    """A frame of several messages, which ``apart`` reads."""
    if len(messages) == 1:
        return messages[0]
    *others, last = messages
    return b"".join([part for each in others for part in (each, bytes(-len(each) % ALIGNED))] + [last])


def apart(frame: bytes, limit: int) -> Iterator[Message]:
    """The messages of a frame. Raises WireError at one that is none, is not all there, or exceeds ``limit``."""
    begin = 0
    while True:
        size = _size(frame, limit, begin)
        left = len(frame) - begin - size
        if left < 0:
            raise WireError(f"a message of {size} bytes ends after {left + size}")
        if 0 < left <= -size % ALIGNED:
            raise WireError(f"a message of {size} bytes goes on after its end")
        yield _read(frame, begin, size)
        if not left:
            return
        begin += size + -size % ALIGNED


def _size(first: bytes, limit: int, begin: int = 0) -> int:
    if len(first) - begin < _HEAD.size or first[begin : begin + 4] != _MAGIC:
        raise WireError("this is no message of a trainer or server")
    size = _HEAD.unpack_from(first, begin)[1]
    if size > limit:
        raise WireError(f"a message of {size} bytes is longer than the {limit} that FLAGS_rpc_max_message_bytes allows")
    return size


def _read(data: bytes, begin: int, size: int) -> Message:
    _, _, trainer, flags, count = _HEAD.unpack_from(data, begin)
    try:
        items = read(data, begin + _HEAD.size, begin + size, count)
    except (FileFormatError, UnicodeDecodeError) as error:
        raise WireError(str(error)) from error
    return Message(items, trainer, flags, size)
