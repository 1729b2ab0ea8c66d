"""Messages that share a frame: what waits together goes together."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import numpy as np
import pytest

from fluidjax.distributed import settings
from fluidjax.distributed.conversation import Conversation
from fluidjax.distributed.listening import Listening
from fluidjax.distributed.requests import Request
from fluidjax.distributed.settings import CHUNK
from fluidjax.distributed.wire import NOW, TOLD, Message, WireError, apart, flags_of, frames, joined, together
from tests.distributed.test_conversations import Call


def numbered(count: int, size: int = 3) -> list[bytes]:
    """Requests of a frame each, with ``size`` numbers."""
    return [frames(Message([(f"n{i}", np.full(size, i, np.float32))], flags=i))[0] for i in range(count)]


def test_what_waits_together_is_one_message_of_the_transport() -> None:
    given: list[Iterator[bytes]] = []

    def open(sent: Iterator[bytes]) -> Call:
        given.append(sent)
        return Call()

    conversation, sent = Conversation(open), numbered(3)
    assert conversation.tell(sent[0]) and conversation.tell(sent[1])
    conversation.ask(sent[2], 60.0, lambda _: None)
    messages = list(apart(next(given[0]), 1 << 20))
    conversation.leave()
    assert [message.flags for message in messages] == [0, 1, 2] and not list(given[0])
    for i, message in enumerate(messages):
        ((name, value),) = message.items
        assert name == f"n{i}" and value.tolist() == [i] * 3
        assert not value.ctypes.data % 4 and not value.flags.owndata  # it lies where it arrived


def test_what_does_not_fit_into_one_goes_in_the_next() -> None:
    given: list[Iterator[bytes]] = []

    def open(sent: Iterator[bytes]) -> Call:
        given.append(sent)
        return Call()

    conversation = Conversation(open)
    for frame in numbered(3, 100_000):  # of 400 kB each: CHUNK has room for two
        assert conversation.tell(frame)
    conversation.leave()
    parts = list(given[0])
    assert [[m.flags for m in apart(part, 1 << 20)] for part in parts] == [[0, 1], [2]]
    assert max(map(len, parts)) <= CHUNK


@pytest.mark.parametrize("end", [b"", b"\0", bytes(16), b"FLJX", bytes(40), numbered(1)[0][:-1]])
def test_messages_in_a_frame_end_where_they_say(end: bytes) -> None:
    whole = together(numbered(2))
    if not end:
        assert len(list(apart(whole, 1 << 20))) == 2
        return
    with pytest.raises(WireError):
        list(apart(whole + end, 1 << 20))
    with pytest.raises(WireError):
        list(apart(end, 1 << 20))


def test_messages_in_a_frame_are_served_in_their_order(endpoint: str) -> None:
    total = 0.0

    def serve(request: Request) -> None:
        nonlocal total
        total = 10 * total + float(request.message.values()[0][0])
        request.reply(Message([("total", np.array([total]))]))

    def request(number: int, flags: int) -> bytes:
        return frames(Message([("n", np.array([number]))], flags=flags_of("SendVariable", flags)))[0]

    listening = Listening(endpoint, 1, serve)
    with grpc.insecure_channel(endpoint) as channel:
        stream = channel.stream_stream(f"/{settings.SERVICE}/{settings.IN_TURN}")
        sent = [together([request(1, TOLD), request(2, 0), request(3, TOLD), request(4, 0)]), request(5, 0)]
        answers = [joined([part], 1000) for part in stream(iter(sent), wait_for_ready=True, timeout=60)]
    listening.stop()
    assert [float(answer.values()[0][0]) for answer in answers if answer is not None] == [12.0, 1234.0, 12345.0]


def test_a_bad_message_ends_the_stream_after_those_before_it(endpoint: str) -> None:
    served: list[int] = []

    def serve(request: Request) -> None:
        served.append(request.message.flags & NOW)
        request.reply()

    listening, good = Listening(endpoint, 1, serve), frames(Message(flags=NOW))[0]
    with grpc.insecure_channel(endpoint) as channel:
        stream = channel.stream_stream(f"/{settings.SERVICE}/{settings.IN_TURN}")
        answers = stream(iter([together([good, b"nothing of the kind"])]), wait_for_ready=True, timeout=60)
        next(answers)
        with pytest.raises(grpc.RpcError) as error:
            next(answers)
    listening.stop()
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT and served == [NOW]
